"""Plain requests are answered without ceremony, and as all others are."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.http.bounds import Bounds
from gpumanager.scheduler.http.plain import Reply, Verb, read_head
from gpumanager.scheduler.http.server import HttpServer, Refused
from tests.scheduler.served import Served, until

PATIENT = Bounds(body_seconds=60, grace_seconds=0.2, body=1 << 20, bodies=1 << 20)
OTHER = "X-Other: 1"
"""A field that makes a request one for aiohttp."""
WHERE = b"POST /echo HTTP/1.1\r\n"
HOST = b"Host: x\r\n"
TWO = b"Content-Length: 2\r\n"


def echo(body: bytes) -> Reply:
    return Reply(body)


async def later(body: bytes) -> Reply:
    await asyncio.sleep(0)
    return Reply(body, 201, {"Retry-After": "1"})


def refuses(_body: bytes) -> Reply:
    raise Refused(400, "no such thing", **{"Retry-After": "1"})


def fails(_body: bytes) -> Reply:
    raise RuntimeError("no")


async def fails_later(_body: bytes) -> Reply:
    raise RuntimeError("no")


def ends(body: bytes) -> Reply:
    return Reply(body, close=True)


VERBS: Mapping[str, Verb] = {
    "/echo": echo,
    "/later": later,
    "/refuses": refuses,
    "/fails": fails,
    "/fails/later": fails_later,
    "/ends": ends,
}


async def page(_request: web.BaseRequest, _body: bytes) -> web.Response:
    return web.Response(body=b"a page")


@asynccontextmanager
async def serving(bounds: Bounds) -> AsyncIterator[Served]:
    server = HttpServer({"/page": {"GET": page}}, bounds, VERBS)
    yield Served(server, await server.start("127.0.0.1", 0))
    await server.stop()


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(PATIENT) as one:
        yield one


def post(path: str, body: bytes, *fields: str) -> bytes:
    rows = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join([*rows, "", ""]).encode() + body


async def answered(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Status, fields and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    fields = dict(row.split(": ", 1) for row in head[1:-2])
    return int(head[0].split()[1]), fields, await reader.readexactly(int(fields["Content-Length"]))


@pytest.mark.parametrize("path", VERBS)
@pytest.mark.parametrize("body", [b"", b"{}", b"x" * 300_000], ids=len)
async def test_a_plain_request_is_answered_as_any_other(
    served: Served, path: str, body: bytes
) -> None:
    said = []
    for fields in ((), (OTHER,)):
        reader, writer = await served.open()
        writer.write(post(path, body, *fields))
        status, found, text = await answered(reader)
        kept = {name: found.get(name) for name in ("Content-Type", "Retry-After", "Connection")}
        said.append((status, kept["Content-Type"], kept["Retry-After"], kept["Connection"], text))
        writer.transport.abort()

    assert said[0] == said[1]


async def test_plain_requests_and_others_are_answered_in_their_order(served: Served) -> None:
    reader, writer = await served.open()
    asked = [("/echo", b"1"), ("/later", b"2"), ("/echo", b"3")]
    others = [("/later", b"4"), ("/echo", b"5")]

    writer.write(b"".join(post(path, body) for path, body in asked))
    writer.write(b"".join(post(path, body, OTHER) for path, body in others))
    writer.write(post("/echo", b"6"))

    assert [(await answered(reader))[2] for _ in range(6)] == [b"1", b"2", b"3", b"4", b"5", b"6"]
    writer.transport.abort()


@pytest.mark.parametrize("size", [1, 7, 50])
async def test_it_does_not_matter_in_which_pieces_a_request_comes(
    served: Served, size: int
) -> None:
    words = post("/echo", b"first") + post("/later", b"second")
    reader, writer = await served.open()

    for at in range(0, len(words), size):
        writer.write(words[at : at + size])
        await asyncio.sleep(0.001)

    assert [(await answered(reader))[2] for _ in range(2)] == [b"first", b"second"]
    writer.transport.abort()


async def test_whose_body_does_not_come_is_told_so_and_let_go() -> None:
    async with serving(replace(PATIENT, body_seconds=0.2)) as served:
        answer = await served.say(post("/echo", b"x" * 10)[:-1])

        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'{"Error": "the request did not come to its end in time"}' in answer
        assert served.server.reading == 0


async def test_what_is_kept_for_a_body_is_given_back_when_its_sender_leaves(
    served: Served,
) -> None:
    _, writer = await served.open()
    writer.write(post("/echo", b"x" * 10)[:-1])
    await until(lambda: served.server.reading == 10)

    writer.transport.abort()

    await until(lambda: served.server.reading == 0)
    assert served.server.connections == 0


async def test_who_is_being_answered_when_the_server_stops_gets_the_answer() -> None:
    go, asked = asyncio.Event(), asyncio.Event()

    async def slow(body: bytes) -> Reply:
        asked.set()
        await go.wait()
        return Reply(body)

    server = HttpServer({}, Bounds(grace_seconds=60), {"/slow": slow})
    one = Served(server, await server.start("127.0.0.1", 0))
    saying = asyncio.create_task(one.say(post("/slow", b"hello")))
    await asked.wait()
    stopping = asyncio.create_task(server.stop())
    await asyncio.sleep(0)
    go.set()
    await stopping

    assert (await saying).endswith(b"\r\n\r\nhello")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /echo HTTP/1.1\r\n" + HOST + TWO,
        b"post /echo HTTP/1.1\r\n" + HOST + TWO,
        b"POST /echo HTTP/1.0\r\n" + HOST + TWO,
        b"POST /echo?x=1 HTTP/1.1\r\n" + HOST + TWO,
        b"POST http://x/echo HTTP/1.1\r\n" + HOST + TWO,
        WHERE + TWO,
        WHERE + HOST,
        WHERE + HOST + TWO + TWO,
        WHERE + HOST + HOST + TWO,
        WHERE + HOST + TWO + b"content-length: 3\r\n",
        WHERE + HOST + b"Content-Length: +2\r\n",
        WHERE + HOST + b"Content-Length: 0x2\r\n",
        WHERE + HOST + b"Content-Length: 2, 2\r\n",
        WHERE + HOST + b"Content-Length : 2\r\n",
        WHERE + HOST + b"Content-Length: 9999999999\r\n",
        WHERE + HOST + TWO + b"Transfer-Encoding: chunked\r\n",
        WHERE + HOST + TWO + b"Expect: 100-continue\r\n",
        WHERE + HOST + TWO + b"Connection: close\r\n",
        WHERE + HOST + TWO + b"Upgrade: h2c\r\n",
        WHERE + HOST + TWO + b"Content-Encoding: gzip\r\n",
        WHERE + HOST + TWO + b" folded\r\n",
        WHERE + HOST + TWO + b"Accept: a\rb\r\n",
        WHERE + HOST + TWO + b"Accept: a\x00\r\n",
        WHERE + HOST + TWO + b"User-Agent: " + b"x" * 5000 + b"\r\n",
        (WHERE + HOST + TWO).replace(b"\r\n", b"\n"),
    ],
)
def test_what_is_not_of_the_plain_form_is_left_to_others(head: bytes) -> None:
    assert read_head(WHERE + HOST + TWO + b"\r\n{}") == (b"/echo", 2, 51)
    assert read_head(head + b"\r\n{}") is None


@given(st.binary(max_size=300))
def test_no_bytes_are_taken_for_a_head_but_a_whole_one(noise: bytes) -> None:
    head = read_head(noise)
    assert head is None or noise[: head.at].endswith(b"\r\n\r\n")
    whole = WHERE + HOST + TWO + b"\r\n"
    for end in range(len(whole)):
        assert read_head(whole[:end]) is None

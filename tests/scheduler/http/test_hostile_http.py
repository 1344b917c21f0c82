"""Both servers of the cluster's side, whoever connects: a status and a sentence, and they live."""

import asyncio
import json
import re
import tracemalloc
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from gpumanager.scheduler.http.server import Bounds
from tests.scheduler.http.hostile import (
    LET_GO,
    SECONDS,
    SERVERS,
    Drip,
    Said,
    Target,
    attacked,
    conversation,
    request,
)
from tests.waiting import until

BODY = 1 << 18
PATIENT = Bounds(
    body=BODY,
    bodies=64 * BODY,
    connections=256,
    head_seconds=120.0,
    body_seconds=120.0,
    answer_seconds=120.0,
)
HURRIED = {
    LET_GO: replace(PATIENT, head_seconds=0.3),
    "408": replace(PATIENT, body_seconds=0.2),
}
"""By what becomes of who is slow: only that is hurried, for a busy machine may be late with the
rest."""
both = pytest.mark.parametrize("name", SERVERS)
plain_and_tls = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


@pytest.fixture(autouse=True)
def _nothing_is_our_fault(caplog: pytest.LogCaptureFixture) -> Any:
    """Whatever others do, no traceback of ours is in the log."""
    yield
    assert [one for one in caplog.records if one.exc_info] == []


@pytest.fixture
async def target(name: str) -> AsyncIterator[Target]:
    async with attacked(name, PATIENT) as one:
        yield one


def head(path: str, *fields: str) -> bytes:
    return "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", *fields, "", ""]).encode()


def conversations(path: str) -> Mapping[str, tuple[Said, str]]:
    """What somebody says to a path that takes a body, and what becomes of it."""
    chunked, piece = "Transfer-Encoding: chunked", b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    return {
        "nothing": ((), LET_GO),
        "half a head": ((head(path)[:-9],), LET_GO),
        "a head that drips": ((head(path)[:-4], Drip()), LET_GO),
        "half a body": ((head(path, "Content-Length: 9"), b"{"), "408"),
        "a body that drips": ((head(path, "Content-Length: 9999"), Drip()), "408"),
        "chunks that drip": ((head(path, chunked), b"fff\r\n", Drip()), "408"),
        "an empty chunked body": ((head(path, chunked), b"0\r\n\r\n"), EMPTY),
        "a huge body, declared": ((head(path, "Content-Length: 99999999999"),), "413"),
        "a huge body, in pieces": ((head(path, chunked), *[piece] * 8), "413"),
        "no body": ((head(path),), EMPTY),
        "a packed body": ((request("POST", path, BOMB, "Content-Encoding: gzip"),), EMPTY),
        "two lengths": ((head(path, "Content-Length: 1", "Content-Length: 2"), b"xx"), "400"),
        "length and chunks": ((head(path, "Content-Length: 4", chunked), b"0\r\n\r\n"), "400"),
        "a length below nothing": ((head(path, "Content-Length: -1"),), "400"),
        "a length of letters": ((head(path, "Content-Length: 1e3"),), "400"),
        "a length without end": ((head(path, "Content-Length: " + "9" * 50),), "400"),
        "a chunk of letters": ((head(path, chunked) + b"many\r\n",), "400"),
        "a chunk below nothing": ((head(path, chunked) + b"-1\r\n",), "400"),
        "words": ((b"hello\r\n\r\n",), "400"),
        "words without end": ((b"x" * 100_000, Drip()), "400"),
        "a handshake": ((b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",), "400"),
        "HTTP/0.9": ((f"GET {path}\r\n\r\n".encode(),), "505"),
        "HTTP/2": ((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), "400"),
        "a folded field": ((head(path, "X: a", " b"),), "400"),
        "a field with a null": ((head(path, "X: a\0b"),), "400"),
        "a huge field": ((head(path, "X: " + "x" * 200_000),), "400"),
        "many fields": ((head(path, *["X: x"] * 2000),), "400"),
        "another host's path": ((head(f"http://else.where{path}?x=1"),), EMPTY),
        "an upgrade": ((head(path, "Connection: Upgrade", "Upgrade: websocket"),), EMPTY),
        "a tunnel": ((b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",), "404"),
    }


EMPTY = "400 or 415"
"""An empty body is no request to either server; the webhook looks at its kind first."""
BOMB = b"\x1f\x8b" + b"\0" * 1000


@both
@plain_and_tls
@pytest.mark.parametrize("bounds", [PATIENT, *HURRIED.values()], ids=["patient", *HURRIED])
async def test_who_is_slow_or_says_too_much_or_nonsense_is_told_so_and_let_go(
    name: str, bounds: Bounds, *, tls: bool
) -> None:
    async with attacked(name, bounds, tls=tls) as target:
        table = {
            (path, what): (said, outcome)
            for path in target.posts
            for what, (said, outcome) in conversations(path).items()
            if HURRIED.get(outcome, PATIENT) == bounds
        }
        answers = await asyncio.gather(*(conversation(target, said) for said, _ in table.values()))
        wanted = {key: outcome for key, (_, outcome) in table.items()}
        told = dict(zip(table, answers, strict=True))

    assert {key: EMPTY if wanted[key] == EMPTY and one in {"400", "415"} else one
            for key, one in told.items()} == wanted  # fmt: skip
    assert target.reading() == 0


BODIES = {
    "nothing": b"",
    "a word": b"hello",
    "half a request": b'{"request": {"metadata"',
    "bytes that are no text": b"\xff\xfe\x00",
    "null": b"null",
    "true": b"true",
    "a list": b"[]",
    "many lists": b"[" + b"[]," * 50_000 + b"[]]",
    "a number": b"7",
    "an endless number": b'{"Pod":' + b"9" * 5000 + b"}",
    "no number at all": b'{"Pod": NaN, "request": Infinity}',
    "no fields": b"{}",
    "fields that nobody knows": b'{"x": {"y": [1]}}',
    "fields of null": b'{"Pod": null, "request": null, "apiVersion": null}',
    "fields of lists": b'{"Pod": [], "request": [], "apiVersion": []}',
    "lists nested deeply": b'{"Pod":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "objects nested deeply": b'{"request":' * 20_000 + b"1" + b"}" * 20_000,
}


@both
async def test_what_is_no_request_is_answered_400_with_a_sentence(
    target: Target, subtests: pytest.Subtests
) -> None:
    for path, (what, body) in product(target.posts, BODIES.items()):
        with subtests.test(f"{path}: {what}"):
            answer = await target.ask(request("POST", path, body, closing=True))

            said = json.loads(answer.partition("\r\n\r\n")[2])
            assert answer.split()[1] == "400"
            assert set(said) == {"Error"}
            assert 0 < len(said["Error"]) < 500


@both
async def test_a_wrong_method_is_told_which_are_right(target: Target) -> None:
    right = dict.fromkeys(target.posts, "POST") | dict.fromkeys(target.gets, "GET")
    for path, allowed in right.items():
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} - {allowed}:
            answer = await target.ask(request(method, path, closing=True))

            assert answer.split()[1] == "405", (method, path)
            assert f"Allow: {allowed}" in answer


@both
async def test_a_wrong_path_is_told_what_there_is(target: Target) -> None:
    paths = ("/", "/nowhere", "//", "/%00", f"{target.posts[0]}/", "/..%2f..%2fetc/passwd")
    for path in set(paths) - set(target.gets):
        answer = await target.ask(request("GET", path, closing=True))

        assert answer.split()[1] == "404", path
        assert target.posts[0] in answer


@both
@plain_and_tls
async def test_requests_that_come_at_once_are_answered_in_their_order(
    name: str, *, tls: bool
) -> None:
    async with attacked(name, PATIENT, tls=tls) as target:
        healthy, nowhere = request("GET", "/healthz"), request("GET", "/nowhere")
        last = request("GET", "/healthz", closing=True)

        answer = await target.ask(healthy + nowhere + healthy + nowhere + last)

    assert re.findall(r"HTTP/1\.1 (\d+)", answer) == ["200", "404", "200", "404", "200"]


@pytest.mark.parametrize(("name", "tls"), [("extender", False), ("webhook", True)])
async def test_who_asks_on_and_never_reads_is_let_go_and_costs_little(
    name: str, *, tls: bool
) -> None:
    async with attacked(name, replace(PATIENT, answer_seconds=0.2), tls=tls) as target:
        _, writer = await target.open(receives=4096)
        asked = request("GET", "/metrics") * 100
        tracemalloc.start()
        try:
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(say_for_ever(writer, asked), 5 * SECONDS)
            most = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            writer.transport.abort()

    assert most < 16 << 20


async def say_for_ever(writer: asyncio.StreamWriter, words: bytes) -> None:
    while True:
        writer.write(words)
        await writer.drain()


@both
async def test_large_bodies_beyond_what_there_is_room_for_are_sent_away(name: str) -> None:
    async with attacked(name, replace(PATIENT, bodies=2 * BODY)) as target:
        large = head(target.posts[0], f"Content-Length: {BODY}") + b"{"
        writers = [(await target.open())[1] for _ in range(2)]
        for writer in writers:
            writer.write(large)
        await until(lambda: target.reading() == 2 * BODY)

        answers = await asyncio.gather(*(conversation(target, (large,)) for _ in range(3)))

        assert answers == ["503"] * 3
        for writer in writers:
            writer.transport.abort()
        await until(lambda: target.reading() == 0)


@both
@plain_and_tls
async def test_a_crowd_keeps_nobody_out_and_is_not_let_grow(name: str, *, tls: bool) -> None:
    few = replace(PATIENT, connections=8)
    async with attacked(name, few, tls=tls) as target:
        crowd = [
            await asyncio.open_connection("127.0.0.1", target.port) for _ in range(5 * 8)
        ]  # who say nothing, and make no handshake

        await target.lives()

        assert target.connections() <= few.connections
        for _, writer in crowd:
            writer.transport.abort()


@both
@pytest.mark.parametrize(
    "said",
    [
        (),
        (b"\x16\x03\x01\xff\xff" * 99,),
        (b"\x16\x03\x01\x00\x05\x01", Drip()),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",),
        (b"\0" * 100_000, Drip(b"\0")),
    ],
    ids=["nothing", "nonsense", "half a handshake", "plain HTTP", "nulls"],
)
async def test_who_makes_no_proper_handshake_is_let_go(name: str, said: Said) -> None:
    async with attacked(name, HURRIED[LET_GO], tls=True) as target:
        plain = Target(**{**vars(target), "tls": None})

        answer = await conversation(plain, said)

        assert not answer.startswith("2")


@both
async def test_who_leaves_in_the_middle_does_no_harm(target: Target) -> None:
    good = request("POST", target.good[0], json.dumps(target.good[1]).encode())
    for length in range(0, len(good), 50):
        _, writer = await target.open()
        writer.write(good[:length])
        await writer.drain()
        writer.transport.abort()

    await target.lives()

    await until(lambda: not target.reading())

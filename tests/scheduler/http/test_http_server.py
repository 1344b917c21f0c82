"""The server of extender and webhook: what it answers, and that nobody can hold it up."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from gpumanager.scheduler.certificates.x509 import KeyPair, issue, make_authority
from gpumanager.scheduler.http.server import Bounds, Routes
from tests.scheduler.http.served import Served, serving
from tests.waiting import until

SHORT, NEVER = 0.2, 600.0
"""Seconds. Each test hurries only what it is about: a busy machine may be late with the rest."""
LONGEST_HEAD = 256 << 10
LONGEST_BODY = 1 << 20
STORED = Bounds(body=LONGEST_BODY)


async def echo(_request: web.BaseRequest, body: bytes) -> web.Response:
    return web.Response(body=body)


async def broken(_request: web.BaseRequest, _body: bytes) -> web.Response:
    raise RuntimeError("no")


async def long(_request: web.BaseRequest, _body: bytes) -> web.Response:
    return web.Response(body=b"x" * (64 << 20))


ROUTES: Routes = {
    "/echo": {"POST": echo, "GET": echo},
    "/broken": {"POST": broken},
    "/long": {"GET": long},
}


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving(ROUTES, STORED) as one:
        yield one


def post(body: bytes = b"", path: str = "/echo", *fields: str) -> bytes:
    """A request as it is on the wire."""
    rows = [f"POST {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *fields]
    return "\r\n".join([*rows, "", ""]).encode() + body


async def test_a_connection_stays_for_one_request_after_another(served: Served) -> None:
    reader, writer = await served.open()

    for body in (b"one", b"", b"x" * 100_000):
        writer.write(post(body))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"Connection: close" not in head
        assert await reader.readexactly(len(body)) == body
    writer.transport.abort()


async def test_requests_that_come_at_once_are_answered_in_their_order(served: Served) -> None:
    answer = await served.say(post(b"one") + post(b"two", "/echo", "Connection: close"))

    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.index(b"one") < answer.index(b"two")


CANNOT = (
    (b"hello\r\n\r\n", 400),
    (b"POST /echo\r\n\r\n", 505),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nno field\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nHost : x\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
    (b"POST /echo HTTP/2.0\r\n\r\n", 505),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1e3\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 50 + b"\r\n\r\n", 400),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
    (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n", 400),
    (b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0", 400),
    (b"POST /echo HTTP/1.1\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * LONGEST_HEAD + b"\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: x\r\n" * 1000 + b"\r\n", 400),
    (b"x" * (1 << 20), 400),
    (b"GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
    (b"PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 405),
)


async def test_what_cannot_be_carried_out_is_told_so_and_the_server_lives(
    served: Served, caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for words, status in CANNOT:
        with subtests.test(words[:60].decode("latin-1")):
            answer = await served.say(words)

            assert answer.split(b" ")[1] == str(status).encode()
            assert (await served.post("/echo", b"hello"))[1] == b"hello"
            assert [one for one in caplog.records if one.exc_info] == []


async def test_who_leaves_in_the_middle_of_a_body_does_no_harm(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    _, writer = await served.open()
    writer.write(post(b"x" * 10)[:-5])
    await until(lambda: served.server.reading)
    writer.transport.abort()

    await until(lambda: not served.server.connections)

    assert served.server.reading == 0
    assert (await served.post("/echo", b"hello"))[1] == b"hello"
    assert [one for one in caplog.records if one.exc_info] == []


async def test_a_body_in_chunks_is_taken(served: Served) -> None:
    fields = b"Transfer-Encoding: chunked\r\nConnection: close"
    words = b"POST /echo HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n\r\n3\r\none\r\n0\r\n\r\n"

    assert (await served.say(words)).endswith(b"\r\n\r\none")


async def test_a_body_that_is_too_long_is_refused_before_it_is_read(served: Served) -> None:
    status, text = await served.post("/echo", b"x" * (LONGEST_BODY + 1))

    assert status == 413
    assert str(LONGEST_BODY) in text.decode()


async def test_all_bodies_together_are_bounded(served: Served) -> None:
    async with serving(ROUTES, Bounds(bodies=1000)) as small:
        reader, writer = await small.open()
        writer.write(post(b"x" * 800)[:-1])
        await until(lambda: small.server.reading == 800)

        assert (await small.post("/echo", b"y" * 300))[0] == 503

        writer.write(b"x")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        assert (await small.post("/echo", b"y" * 900))[0] == 200
        writer.transport.abort()


async def test_who_waits_to_be_asked_for_the_body_is_asked(served: Served) -> None:
    reader, writer = await served.open()
    words = post(b"body", "/echo", "Expect: 100-continue", "Connection: close")
    writer.write(words[:-4])

    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"body")
    assert (await reader.read()).endswith(b"\r\n\r\nbody")
    writer.transport.abort()


async def test_head_is_answered_without_the_page(served: Served) -> None:
    answer = await served.say(b"HEAD /echo HTTP/1.0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.0 200 ")
    assert answer.endswith(b"\r\n\r\n")


async def test_a_handler_that_fails_is_500_and_the_next_is_answered(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await served.post("/broken", b""))[0] == 500
    assert (await served.post("/echo", b"x"))[0] == 200
    assert "RuntimeError" in caplog.text


async def test_who_is_slow_to_send_a_body_is_told_so_and_let_go() -> None:
    async with serving(ROUTES, Bounds(body_seconds=SHORT)) as hurried:
        answer = await hurried.say(post(b"x" * 10)[:-5])

    assert answer.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("words", [b"", b"P", post()[:-5]])
async def test_who_says_nothing_or_half_a_head_is_let_go(words: bytes) -> None:
    async with serving(ROUTES, Bounds(head_seconds=SHORT)) as hurried:
        assert await hurried.say(words) == b""


async def test_who_does_not_take_the_answer_is_let_go() -> None:
    async with serving(ROUTES, Bounds(answer_seconds=SHORT)) as hurried:
        reader, writer = await asyncio.open_connection("127.0.0.1", hurried.port, limit=1)
        writer.write(b"GET /long HTTP/1.1\r\n\r\n")
        assert await reader.read(1) == b"H"

        await until(lambda: not hurried.server.connections)

        writer.transport.abort()


async def test_the_idle_give_way_to_who_comes_when_all_places_are_taken() -> None:
    async with serving(ROUTES, Bounds(connections=4, head_seconds=30)) as full:
        crowd = [await full.open() for _ in range(4)]
        await until(lambda: full.server.connections == 4)

        assert (await full.post("/echo", b"hello"))[1] == b"hello"

        assert await crowd[0][0].read() == b""  # who came first, and was idle the longest
        crowd[3][1].write(post(b"still here"))
        assert (await crowd[3][0].readuntil(b"here")).startswith(b"HTTP/1.1 200 ")
        for _, writer in crowd:
            writer.transport.abort()


async def test_who_is_being_answered_is_not_cut_off_for_another() -> None:
    async with serving(ROUTES, Bounds(connections=1, body_seconds=30)) as full:
        reader, writer = await full.open()
        writer.write(post(b"slow")[:-1])
        await until(lambda: full.server.reading)
        waiting = asyncio.create_task(full.post("/echo", b"next"))
        await asyncio.sleep(0)

        writer.write(b"w")

        assert (await reader.readuntil(b"slow")).startswith(b"HTTP/1.1 200 ")
        assert (await waiting)[1] == b"next"
        writer.transport.abort()


@pytest.fixture(scope="module")
def identity() -> KeyPair:
    now, day = datetime.now(UTC), timedelta(days=1)
    return issue(make_authority(now, day), ["localhost"], now, day)


async def test_who_does_not_finish_a_handshake_is_let_go_and_counts_meanwhile(
    identity: KeyPair,
) -> None:
    context, counts = identity.context(), list[int]()

    def meeting() -> ssl.SSLContext:
        counts.append(one.server.connections)
        return context

    async with serving(ROUTES, Bounds(head_seconds=0.1, connections=2), meeting) as one:
        crowd = [await one.open() for _ in range(5)]
        for reader, writer in crowd:
            assert await reader.read() == b""
            writer.transport.abort()

    assert len(counts) == 5
    assert max(counts) <= 2


@pytest.mark.parametrize(
    "words", [b"POST /echo HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" * 99, b""]
)
async def test_who_does_not_speak_tls_is_let_go_and_the_next_is_served(
    identity: KeyPair, words: bytes
) -> None:
    context = identity.context()
    async with serving(ROUTES, tls=lambda: context) as one:
        with contextlib.suppress(ConnectionResetError):
            await one.say(words)

        believing = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        believing.check_hostname, believing.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection("127.0.0.1", one.port, ssl=believing)
        writer.write(post(b"hello"))
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")
        writer.transport.abort()


async def test_a_server_that_stops_answers_who_has_asked_and_lets_go_of_its_port() -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.BaseRequest, _body: bytes) -> web.Response:
        asked.set()
        await go.wait()
        return web.Response(body=b"done")

    async with serving({"/slow": {"POST": slow}}, Bounds(grace_seconds=NEVER)) as one:
        answer = asyncio.create_task(one.post("/slow", b""))
        idle_reader, idle_writer = await one.open()
        await until(lambda: one.server.connections == 2)
        await asked.wait()
        stopping = asyncio.create_task(one.server.stop())
        assert await idle_reader.read() == b""
        go.set()
        await stopping

        assert await answer == (200, b"done")
        with pytest.raises(ConnectionRefusedError):
            await one.open()
        idle_writer.transport.abort()


async def test_a_stop_waits_for_nobody_longer_than_its_grace() -> None:
    async with serving(ROUTES, Bounds(body_seconds=NEVER, grace_seconds=SHORT)) as hurried:
        reader, writer = await hurried.open()
        writer.write(post(b"x")[:-1])
        await until(lambda: hurried.server.reading)

        async with asyncio.timeout(300):
            await hurried.server.stop()

        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()

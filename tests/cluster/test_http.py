"""The HTTP client, before peers that behave and peers that do not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpumanager.cluster import http
from gpumanager.cluster.http import HttpBroken, Peer, Request, exchange

GET = Request("GET", "/x")


@asynccontextmanager
async def peer_that_says(*pieces: bytes, heard: list[bytes] | None = None) -> AsyncIterator[Peer]:
    """A server that answers so and closes; a pause between the pieces."""

    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # who has heard enough may leave
            request = await reader.readuntil(b"\r\n\r\n")
            if heard is not None:
                heard.append(request)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.005)
        await closed(writer)
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield Peer("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()
    await ended.wait()


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def body_of(*pieces: bytes) -> bytes:
    """Of an answer that may be broken, hence the try."""
    async with peer_that_says(*pieces) as peer:
        try:
            async with exchange(peer, GET) as response:
                assert response.status == 200
                return await response.read()
        except HttpBroken as error:
            broken = error
    raise broken


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "pieces",
    [
        (OK + b"Content-Length: 5\r\n\r\nhello",),
        (OK + b"Content-Length: 5\r\n\r\n", b"he", b"llo", b"more than it said"),
        (OK + b"\r\nhello",),
        (CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",),
        (CHUNKED, b"2;ext=1\r\nhe\r\n", b"3\r\nl", b"lo\r\n0", b"\r\n\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", OK + b"Content-Length: 5\r\n\r\nhello"),
        (b"HTTP/1.0 200\r\n\r\nhello",),
    ],
)
async def test_a_body_is_read_however_it_is_sent(pieces: tuple[bytes, ...]) -> None:
    assert await body_of(*pieces) == b"hello"


@pytest.mark.parametrize(
    "pieces",
    [
        (b"",),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n",),
        (b"\r\n\r\n",),
        (b"HTTP/1.1 many OK\r\n\r\n",),
        (b"HTTP/1.1 200 OK\r\nA: 1",),
        (OK + b"A: " + b"x" * 70_000 + b"\r\n\r\n",),
        (OK + b"Content-Length: 9\r\n\r\nhello",),
        (OK + b"Content-Length: -1\r\n\r\nhello",),
        (OK + b"Content-Length: some\r\n\r\nhello",),
        (CHUNKED + b"5\r\nhel",),
        (CHUNKED + b"5\r\nhello\r\n",),
        (CHUNKED + b"what\r\nhello\r\n",),
        (CHUNKED + b"-5\r\nhello\r\n",),
        (CHUNKED + b"1" * 70_000,),
    ],
)
async def test_what_is_no_whole_answer_is_said_to_be_broken(pieces: tuple[bytes, ...]) -> None:
    with pytest.raises(HttpBroken):
        await body_of(*pieces)


async def test_an_endless_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_BODY", 1000)

    with pytest.raises(HttpBroken, match="more than 1000 bytes"):
        await body_of(OK + b"\r\n", b"x" * 5000)


async def test_an_endless_line_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_LINE", 1000)

    async with peer_that_says(OK + b"\r\n", b"x" * 5000) as peer, exchange(peer, GET) as response:
        with pytest.raises(HttpBroken, match="more than 1000 bytes"):
            await anext(response.lines())


async def test_lines_come_one_by_one_wherever_they_are_cut() -> None:
    pieces = (CHUNKED + b"3\r\none\r\n", b"5\r\n\ntwo\n\r\n", b"4\r\nhalf\r\n0\r\n\r\n")

    async with peer_that_says(*pieces) as peer, exchange(peer, GET) as response:
        assert [line async for line in response.lines()] == [b"one", b"two"]


async def test_a_request_says_whom_it_wants_and_how_long_it_is() -> None:
    heard: list[bytes] = []
    request = Request("POST", "/a?b=c", {"Accept": "application/json"}, b"{}")

    async with (
        peer_that_says(OK + b"\r\n", heard=heard) as peer,
        exchange(peer, request) as response,
    ):
        await response.read()

    lines = heard[0].decode().split("\r\n")
    assert lines[0] == "POST /a?b=c HTTP/1.1"
    assert {f"Host: 127.0.0.1:{peer.port}", "Content-Length: 2", "Connection: close"} < {*lines}


async def test_an_address_of_version_6_is_written_in_brackets() -> None:
    assert Peer("::1", 6443).authority == "[::1]:6443"


async def test_who_gives_up_on_a_silent_peer_leaves_no_connection() -> None:
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionResetError):
            while await reader.read(1000):
                pass
        await closed(writer)
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    peer = Peer("127.0.0.1", server.sockets[0].getsockname()[1])

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), exchange(peer, GET):
            pytest.fail("it has answered")

    await asyncio.wait_for(ended.wait(), 120)
    server.close()

"""Connections to the API server are used again where that is safe, and only there."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpumanager.cluster.http import HttpBroken, Peer, Request, exchange
from gpumanager.cluster.kept import IDLE_SECONDS, Kept

GET = Request("GET", "/x")
OK = b"HTTP/1.1 200 OK\r\n"
WHOLE = OK + b"Content-Length: 2\r\n\r\n{}"


class Server:
    """Answers each request with what `says` is then; counts its connections."""

    def __init__(self) -> None:
        self.says = WHOLE
        self.heard: list[bytes] = []
        self.connections = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                self.heard.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(self.says)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


class Clock:
    """Goes on when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def kept(clock: Clock) -> AsyncIterator[Kept]:
    found = Kept(most=2, clock=clock)
    yield found
    found.close()


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def peer(server: Server) -> AsyncIterator[Peer]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    yield Peer("127.0.0.1", listening.sockets[0].getsockname()[1])
    listening.close()
    for writer in server.writers:
        writer.close()


async def ask(peer: Peer, kept: Kept | None) -> bytes:
    async with exchange(peer, GET, kept) as response:
        return await response.read()


async def test_the_next_request_takes_the_same_connection(
    server: Server, peer: Peer, kept: Kept
) -> None:
    assert [await ask(peer, kept) for _ in range(3)] == [b"{}"] * 3

    assert server.connections == 1
    assert all(b"Connection: close" not in said for said in server.heard)


async def test_an_answer_in_pieces_leaves_the_connection_whole(
    server: Server, peer: Peer, kept: Kept
) -> None:
    server.says = OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"

    assert [await ask(peer, kept) for _ in range(2)] == [b"{}"] * 2
    assert server.connections == 1


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}",
        OK + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
)
async def test_a_server_that_closes_is_believed(
    answer: bytes, server: Server, peer: Peer, kept: Kept
) -> None:
    server.says = answer

    await ask(peer, kept)
    await ask(peer, kept)

    assert server.connections == 2


async def test_a_connection_that_was_idle_too_long_is_not_trusted(
    server: Server, peer: Peer, kept: Kept, clock: Clock
) -> None:
    await ask(peer, kept)
    clock.now = IDLE_SECONDS

    await ask(peer, kept)

    assert server.connections == 2


async def test_an_answer_that_was_not_read_to_its_end_spoils_the_connection(
    server: Server, peer: Peer, kept: Kept
) -> None:
    async with exchange(peer, GET, kept):
        pass

    assert await ask(peer, kept) == b"{}"
    assert server.connections == 2


async def test_a_connection_that_broke_is_not_used_again(
    server: Server, peer: Peer, kept: Kept
) -> None:
    server.says = OK + b"Content-Length: x\r\n\r\n{}"
    with pytest.raises(HttpBroken):
        await ask(peer, kept)
    server.says = WHOLE

    assert await ask(peer, kept) == b"{}"
    assert server.connections == 2


async def test_few_connections_are_kept(server: Server, peer: Peer, kept: Kept) -> None:
    for _ in range(2):
        await asyncio.gather(*(ask(peer, kept) for _ in range(4)))

    assert server.connections == 4 + 2


async def test_another_server_has_connections_of_its_own(
    server: Server, peer: Peer, kept: Kept
) -> None:
    await ask(peer, kept)
    await ask(Peer("localhost", peer.port), kept)

    assert server.connections == 2


async def test_without_a_place_to_keep_it_a_connection_is_used_once(
    server: Server, peer: Peer
) -> None:
    await ask(peer, None)

    assert b"Connection: close" in server.heard[0]

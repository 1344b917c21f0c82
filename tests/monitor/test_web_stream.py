"""The stream of looks: everybody gets the newest, nobody holds up anybody, and it ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from gpumanager.http_server import BoundedServer, ConnectionBounds
from gpumanager.monitor.web_pages.routes import answer, routed, streamed
from gpumanager.monitor.web_pages.stream import (
    BEAT,
    GREETING,
    KIND,
    LISTENERS,
    Stream,
    TooManySubscribers,
)
from tests.waiting import until


class World:
    """A state, a stream of it, and a server."""

    def __init__(self, size: int = 1, **settings: object) -> None:
        self.state, self.size, self.made = b"", size, 0
        self.stream = Stream(self.newest, **settings)  # type: ignore[arg-type]
        self.server = BoundedServer(
            routed({"/s": self.listen}), ConnectionBounds(answer_seconds=0.3, grace_seconds=0.1)
        )
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    def newest(self) -> bytes:
        self.made += 1
        return self.state * self.size

    def is_now(self, state: bytes) -> None:
        self.state = state
        self.stream.tell()

    async def listen(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            listener = self.stream.listen()
        except TooManySubscribers:
            return answer(503, "too many")
        return await streamed(request, listener, KIND, {})

    async def open(self, path: bytes = b"GET /s") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        writer.write(path + b" HTTP/1.0\r\n\r\n")
        self.writers.append(writer)
        return reader


@contextlib.asynccontextmanager
async def serving(size: int = 1, **settings: object) -> AsyncIterator[World]:
    world = World(size, **settings)
    world.port = await world.server.start("127.0.0.1", 0)
    try:
        yield world
    finally:
        await world.stream.end()
        await world.server.stop()
        for writer in world.writers:
            writer.transport.abort()


async def event(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(120):
        return await reader.readuntil(b"\n\n")


async def begun(reader: asyncio.StreamReader) -> bytes:
    """The head of the answer; the greeting has come."""
    async with asyncio.timeout(120):
        head = await reader.readuntil(b"\r\n\r\n")
    assert await event(reader) == GREETING
    return head


async def test_a_listener_gets_the_present_state_and_each_that_follows() -> None:
    async with serving() as world:
        world.is_now(b"1")
        reader = await world.open()

        head = await begun(reader)

        assert head.startswith(b"HTTP/1.0 200 ")
        assert b"Content-Length" not in head
        assert await event(reader) == b"id: 1\nevent: look\ndata: 1\n\n"
        world.is_now(b"2")
        assert await event(reader) == b"id: 2\nevent: look\ndata: 2\n\n"


async def test_a_state_is_made_once_however_many_listen_and_not_if_nobody_does() -> None:
    async with serving() as world:
        world.is_now(b"1")
        assert world.made == 0

        readers = [await world.open() for _ in range(LISTENERS)]
        for reader in readers:
            await begun(reader)
            await event(reader)

        assert world.made == 1


async def test_who_was_slow_is_given_the_newest_and_none_between() -> None:
    stream = Stream(lambda: b"x")
    listener = stream.listen()
    assert await anext(listener) == GREETING
    for _ in range(7):
        stream.tell()

    assert (await anext(listener)).startswith(b"id: 7\n")


async def test_without_news_there_is_a_sign_of_life() -> None:
    stream = Stream(lambda: b"x", beat_seconds=0.01)
    listener = stream.listen()
    await anext(listener)

    assert [await anext(listener) for _ in range(3)] == [BEAT] * 3


async def test_one_more_than_may_listen_is_told_so_and_has_room_when_another_goes() -> None:
    async with serving(most=2) as world:
        world.is_now(b"1")
        readers = [await world.open() for _ in range(2)]
        for reader in readers:
            await begun(reader)
        refused = await world.open()
        assert (await refused.readline()).startswith(b"HTTP/1.0 503 ")

        world.writers[0].transport.abort()
        async with asyncio.timeout(120):
            while len(world.stream.listeners) == 2:
                world.is_now(b"x")  # by writing to him it is noticed that he is gone
                await asyncio.sleep(0.01)

        await begun(await world.open())


async def test_who_takes_nothing_is_let_go_and_the_others_go_on() -> None:
    async with serving(size=8 << 20) as world:
        stuck = await asyncio.open_connection("127.0.0.1", world.port, limit=1)
        stuck[1].write(b"GET /s HTTP/1.0\r\n\r\n")
        await until(lambda: world.stream.listeners)

        world.is_now(b"1")
        await until(lambda: not world.stream.listeners)

        world.size = 1
        world.is_now(b"2")
        good = await world.open()
        await begun(good)
        assert b"data: 2\n" in await event(good)
        stuck[1].transport.abort()


async def test_head_is_answered_and_nobody_listens() -> None:
    async with serving() as world:
        reader = await world.open(b"HEAD /s")

        async with asyncio.timeout(120):
            answer = await reader.read()

        assert answer.startswith(b"HTTP/1.0 200 ")
        assert answer.endswith(b"\r\n\r\n")
        assert not world.stream.listeners


async def test_at_the_end_a_stream_ends_as_streams_do() -> None:
    async with serving() as world:
        world.is_now(b"1")
        reader = await world.open()
        await begun(reader)
        await event(reader)

        await world.stream.end()

        async with asyncio.timeout(120):
            assert await reader.read() == b""
        with pytest.raises(TooManySubscribers):
            world.stream.listen()


async def test_the_end_does_not_wait_for_who_does_not_listen_to_it() -> None:
    stream = Stream(lambda: b"x")
    stream.listen()

    async with asyncio.timeout(120):
        await stream.end()


async def test_before_the_first_look_there_is_nothing_and_it_comes() -> None:
    async with serving() as world:
        reader = await world.open()
        await begun(reader)

        world.is_now(b"1")

        assert b"data: 1\n" in await event(reader)

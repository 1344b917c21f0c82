"""The bounded server and a page router: what they answer, and that no caller can hold them up."""

import asyncio
import contextlib
import http.client
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gpumanager.http_server import BoundedServer, ConnectionBounds
from gpumanager.monitor.pages import answer, routed
from tests.waiting import until

SHORT = ConnectionBounds(
    head_seconds=0.2, answer_seconds=0.2, idle_seconds=0.2, connections=4, grace_seconds=0.1
)
LONGEST_HEAD = 8 << 10
BYE = b"HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n"


class Served:
    """A server with a page, a broken page and a long one."""

    def __init__(self, bounds: ConnectionBounds) -> None:
        self.asked = self.slow = self.longs = 0
        self.done = asyncio.Event()
        pages = {
            "/page": self.page,
            "/broken": self.broken,
            "/refused": self.refused,
            "/long": self.long,
            "/slow": self.wait,
        }
        self.server = BoundedServer(routed(pages), bounds)
        self.port = 0

    async def page(self, _request: web.BaseRequest) -> web.Response:
        self.asked += 1
        return answer(200, b"hello", **{"X-Seen": "1"})

    async def broken(self, _request: web.BaseRequest) -> web.Response:
        raise RuntimeError("no")

    async def refused(self, _request: web.BaseRequest) -> web.Response:
        raise ConnectionRefusedError("by somebody else")

    async def wait(self, _request: web.BaseRequest) -> web.Response:
        self.slow += 1
        await self.done.wait()
        return answer(200, b"")

    async def deaf(self) -> asyncio.StreamWriter:
        """Asks for the long page, and takes nothing of it."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1)
        before = self.longs
        writer.write(b"GET /long HTTP/1.1\r\nHost: node\r\n\r\n")
        await until(lambda: self.longs > before)
        return writer

    async def long(self, _request: web.BaseRequest) -> web.Response:
        self.longs += 1
        return answer(200, b"x" * (16 << 20))

    async def ask(self, method: str, path: str, **more: Any) -> http.client.HTTPResponse:
        return await asyncio.to_thread(self._ask, method, path, more)

    def _ask(self, method: str, path: str, more: dict[str, Any]) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, **more)
        response = connection.getresponse()
        response.text = response.read().decode()  # type: ignore[attr-defined]
        connection.close()
        return response

    async def say(self, words: bytes) -> bytes:
        """All that is answered to these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(words)
        async with asyncio.timeout(120):
            said = await reader.read()
        writer.close()
        return said


Start = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(bounds: ConnectionBounds | None = None) -> Served:
            served = Served(bounds or ConnectionBounds(grace_seconds=0.1))
            stack.push_async_callback(served.server.stop)
            served.port = await served.server.start("127.0.0.1", 0)
            return served

        yield start


async def test_a_page_is_answered_whole(serve: Start) -> None:
    served = await serve()

    found = await served.ask("GET", "/page?any=thing")

    assert (found.status, found.text) == (200, "hello")
    assert (found.headers["X-Seen"], found.headers["Content-Length"]) == ("1", "5")


async def test_head_is_answered_without_the_page(serve: Start) -> None:
    served = await serve()

    said = await served.say(b"HEAD /page " + BYE)

    head, _, body = said.partition(b"\r\n\r\n")
    assert b"Content-Length: 5" in head
    assert body == b""


async def test_an_unknown_path_is_404_and_names_those_there_are(serve: Start) -> None:
    found = await (await serve()).ask("GET", "/nothing")

    assert found.status == 404
    assert "/page" in found.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_another_method_is_405_and_names_those_there_are(serve: Start, method: str) -> None:
    served = await serve()

    found = await served.ask(method, "/page", body=b"x" * 30_000)

    assert (found.status, found.headers["Allow"]) == (405, "GET, HEAD")
    assert served.asked == 0


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /page\r\n\r\n", 505),
        (b"GET  /page HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"GET /page HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * LONGEST_HEAD + b"\r\n\r\n", 400),
    ],
    ids=["words", "no version", "two spaces", "TLS", "HTTP/2", "long head"],
)
async def test_what_is_no_request_is_told_so(serve: Start, words: bytes, status: int) -> None:
    said = await (await serve()).say(words)

    assert said.split(b" ")[1] == str(status).encode()


async def test_a_page_that_fails_is_500_and_the_next_is_answered(
    serve: Start, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()

    assert (await served.ask("GET", "/broken")).status == 500
    assert (await served.ask("GET", "/refused")).status == 500
    assert (await served.ask("GET", "/page")).status == 200
    assert "RuntimeError" in caplog.text


@pytest.mark.parametrize("words", [b"", b"GET /page HTTP/1.1\r\n", b"x" * (1 << 20)])
async def test_a_connection_without_a_whole_request_is_closed(serve: Start, words: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        said = await (await serve(SHORT)).say(words)
        assert said == b"" or b" 400 " in said


async def test_a_connection_that_asks_no_more_is_closed(serve: Start) -> None:
    served = await serve(ConnectionBounds(idle_seconds=0.2, grace_seconds=0.1))

    said = await served.say(b"GET /page HTTP/1.1\r\nHost: node\r\n\r\n" * 2)

    assert said.count(b"hello") == 2


async def test_who_does_not_take_the_answer_is_let_go(serve: Start) -> None:
    served = await serve(SHORT)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
    writer.write(b"GET /long HTTP/1.1\r\nHost: node\r\n\r\n")

    await until(lambda: not served.server.open_connections)

    writer.transport.abort()
    del reader


async def test_a_caller_that_does_not_ask_gives_way_to_the_next(serve: Start) -> None:
    served = await serve(ConnectionBounds(4, head_seconds=600, grace_seconds=0.1))
    crowd = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(9)]
    await until(lambda: served.server.open_connections == 4)

    assert (await served.ask("GET", "/page")).status == 200

    for reader, _ in crowd[:5]:
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    for _, writer in crowd:
        writer.transport.abort()


async def test_a_caller_that_does_not_take_its_answer_gives_way_to_the_next(serve: Start) -> None:
    served = await serve(ConnectionBounds(4, answer_seconds=600, grace_seconds=0.1))
    crowd = [await served.deaf() for _ in range(4)]

    assert (await served.ask("GET", "/page")).status == 200

    assert served.server.open_connections < 5
    for writer in crowd:
        writer.transport.abort()


async def test_a_caller_whose_answer_is_being_made_is_waited_for(serve: Start) -> None:
    served = await serve(ConnectionBounds(4, head_seconds=600))
    waiting = []
    for _ in range(4):
        waiting.append(asyncio.create_task(served.ask("GET", "/slow")))
        await until(lambda: served.slow == len(waiting))

    late = [asyncio.create_task(served.ask("GET", "/page")) for _ in range(3)]
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)  # the kernel accepts it
    assert served.asked == 0
    served.done.set()

    assert [(await one).status for one in (*waiting, *late)] == [200] * 7
    writer.transport.abort()


async def test_what_is_being_answered_at_the_end_has_its_grace(serve: Start) -> None:
    served = await serve(ConnectionBounds(grace_seconds=600))
    waiting = asyncio.create_task(served.ask("GET", "/slow"))
    await until(lambda: served.slow == 1)

    stopping = asyncio.create_task(served.server.stop())
    served.done.set()
    await stopping

    assert (await waiting).status == 200


async def test_the_end_is_not_held_up_by_a_slow_page_nor_by_a_slow_reader(serve: Start) -> None:
    served = await serve(ConnectionBounds(answer_seconds=600, grace_seconds=0.1))
    writer = await served.deaf()
    waiting = asyncio.create_task(served.ask("GET", "/slow"))
    await until(lambda: served.slow == 1)

    async with asyncio.timeout(120):
        await served.server.stop()

    assert not served.server.open_connections
    with contextlib.suppress(http.client.HTTPException, ConnectionError):
        await waiting
    writer.transport.abort()


async def test_a_unix_socket_is_for_our_own_account_and_is_made_anew(tmp_path: Path) -> None:
    place = tmp_path / "s"
    for _ in range(2):
        served = Served(ConnectionBounds(grace_seconds=0.1))
        await served.server.start_at(place)
        try:
            reader, writer = await asyncio.open_unix_connection(place)
            writer.write(b"GET /page " + BYE)
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            assert place.stat().st_mode & 0o777 == 0o600
        finally:
            await served.server.stop()


async def test_a_stopped_server_lets_go_of_everybody_and_of_its_port(serve: Start) -> None:
    served = await serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    await until(lambda: served.server.open_connections)

    await served.server.stop()

    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.transport.abort()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", served.port)


async def test_localhost_is_every_loopback_address_on_one_port() -> None:
    served = Served(ConnectionBounds(grace_seconds=0.1))
    port = await served.server.start("localhost", 0)
    try:
        found = socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
        for *_, where in dict.fromkeys(found):
            reader, writer = await asyncio.open_connection(*where[:2])
            writer.write(b"GET /page " + BYE)
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
    finally:
        await served.server.stop()


async def test_a_port_that_is_taken_is_an_error_and_holds_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await BoundedServer(routed({})).start("127.0.0.1", taken.getsockname()[1])

"""The server of pages: what it answers, and that nobody can hold it up."""

import asyncio
import contextlib
import http.client
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gpumanager.monitor.http import LONGEST_HEAD, Answer, Bounds, HttpServer
from tests.monitor.monitor_world import until

SHORT = Bounds(head_seconds=0.2, answer_seconds=0.2, connections=4)


class Served:
    """A server with a page, a broken page and a long one."""

    def __init__(self, bounds: Bounds) -> None:
        self.asked = self.slow = self.longs = 0
        self.done = asyncio.Event()
        pages = {
            "/page": self.page,
            "/broken": self.broken,
            "/long": self.long,
            "/slow": self.wait,
        }
        self.server = HttpServer(pages, bounds)
        self.port = 0

    async def page(self) -> Answer:
        self.asked += 1
        return Answer(body=b"hello", fields={"X-Seen": "1"})

    async def broken(self) -> Answer:
        raise RuntimeError("no")

    async def wait(self) -> Answer:
        self.slow += 1
        await self.done.wait()
        return Answer()

    async def deaf(self) -> asyncio.StreamWriter:
        """Asks for the long page, and takes nothing of it."""
        _, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1)
        before = self.longs
        writer.write(b"GET /long HTTP/1.1\r\n\r\n")
        await until(lambda: self.longs > before)
        return writer

    async def long(self) -> Answer:
        self.longs += 1
        return Answer(body=b"x" * (64 << 20))

    async def ask(self, method: str, path: str, **more: Any) -> http.client.HTTPResponse:
        return await asyncio.to_thread(self._ask, method, path, more)

    def _ask(self, method: str, path: str, more: dict[str, Any]) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, **more)
        response = connection.getresponse()
        response.text = response.read().decode()  # type: ignore[attr-defined]
        connection.close()
        return response

    async def say(self, words: bytes, *, close: bool = True) -> bytes:
        """All that is answered to these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(words)
        if close:
            writer.write_eof()
        async with asyncio.timeout(120):
            answer = await reader.read()
        writer.close()
        return answer


Start = Callable[..., Any]


@pytest.fixture
async def serve() -> AsyncIterator[Start]:
    async with contextlib.AsyncExitStack() as stack:

        async def start(bounds: Bounds | None = None) -> Served:
            served = Served(bounds or Bounds())
            stack.push_async_callback(served.server.stop)
            served.port = await served.server.start("127.0.0.1", 0)
            return served

        yield start


async def test_a_page_is_answered_whole_and_the_connection_ends(serve: Start) -> None:
    served = await serve()

    answer = await served.ask("GET", "/page?any=thing")

    assert (answer.status, answer.text) == (200, "hello")
    assert (answer.headers["X-Seen"], answer.headers["Content-Length"]) == ("1", "5")
    assert answer.headers["Connection"] == "close"


async def test_head_is_answered_without_the_page(serve: Start) -> None:
    served = await serve()

    answer = await served.say(b"HEAD /page HTTP/1.1\r\n\r\n")

    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"Content-Length: 5" in head
    assert body == b""


async def test_an_unknown_path_is_404_and_names_those_there_are(serve: Start) -> None:
    answer = await (await serve()).ask("GET", "/nothing")

    assert answer.status == 404
    assert "/page" in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"])
async def test_another_method_is_405_and_names_those_there_are(serve: Start, method: str) -> None:
    served = await serve()

    answer = await served.ask(method, "/page", body=b"x" * 30_000)

    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert served.asked == 0


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"GET /page\r\n\r\n", 400),
        (b"GET  /page HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", 400),
        (b"GET /page HTTP/1.1\r\nHost: ", 400),
        (b"GET /page HTTP/2.0\r\n\r\n", 505),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * LONGEST_HEAD + b"\r\n\r\n", 431),
        (b"x" * (1 << 20), 431),
    ],
    ids=["words", "no version", "two spaces", "TLS", "half", "HTTP/2", "long head", "endless"],
)
async def test_what_is_no_request_is_told_so(serve: Start, words: bytes, status: int) -> None:
    answer = await (await serve()).say(words)

    assert answer.startswith(f"HTTP/1.1 {status} ".encode())


async def test_a_page_that_fails_is_500_and_the_next_is_answered(
    serve: Start, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve()

    assert (await served.ask("GET", "/broken")).status == 500
    assert (await served.ask("GET", "/page")).status == 200
    assert "RuntimeError" in caplog.text


async def test_who_does_not_finish_asking_is_let_go(serve: Start) -> None:
    answer = await (await serve(SHORT)).say(b"GET /page HTTP/1.1\r\n", close=False)

    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_who_does_not_take_the_answer_is_let_go(serve: Start) -> None:
    served = await serve(SHORT)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1)
    writer.write(b"GET /long HTTP/1.1\r\n\r\n")

    await until(lambda: not served.server.callers)

    writer.transport.abort()
    del reader


async def test_a_caller_that_does_not_ask_gives_way_to_the_next(serve: Start) -> None:
    served = await serve(Bounds(head_seconds=600, asking=4))
    crowd = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(9)]
    await until(lambda: served.server.callers == 4)

    assert (await served.ask("GET", "/page")).status == 200

    assert [await reader.read() for reader, _ in crowd[:5]] == [b""] * 5
    for _, writer in crowd:
        writer.transport.abort()


async def test_a_caller_that_does_not_take_its_answer_gives_way_to_the_next(serve: Start) -> None:
    served = await serve(Bounds(answer_seconds=600, connections=4))
    crowd = [await served.deaf() for _ in range(4)]

    assert (await served.ask("GET", "/page")).status == 200

    assert served.server.callers < 5
    for writer in crowd:
        writer.transport.abort()


async def test_a_caller_whose_answer_is_being_made_is_not_let_go(serve: Start) -> None:
    served = await serve(Bounds(head_seconds=600, connections=4, asking=1))
    waiting = []
    for _ in range(4):
        waiting.append(asyncio.create_task(served.ask("GET", "/slow")))
        await until(lambda: served.slow == len(waiting))

    turned_away = [(await served.ask("GET", "/page")).status for _ in range(3)]
    served.done.set()

    assert turned_away == [503, 503, 503]
    assert [(await one).status for one in waiting] == [200] * 4
    assert (await served.ask("GET", "/page")).status == 200


async def test_a_unix_socket_is_for_our_own_account_and_is_made_anew(tmp_path: Path) -> None:
    place = tmp_path / "s"
    for _ in range(2):
        served = Served(Bounds())
        await served.server.start_at(place)
        try:
            reader, writer = await asyncio.open_unix_connection(place)
            writer.write(b"GET /page HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            assert place.stat().st_mode & 0o777 == 0o600
        finally:
            await served.server.stop()


async def test_a_stopped_server_lets_go_of_everybody_and_of_its_port(serve: Start) -> None:
    served = await serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    await until(lambda: served.server.callers)

    await served.server.stop()

    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.transport.abort()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", served.port)


async def test_localhost_is_every_loopback_address_on_one_port() -> None:
    served = Served(Bounds())
    port = await served.server.start("localhost", 0)
    try:
        found = socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
        for *_, where in dict.fromkeys(found):
            reader, writer = await asyncio.open_connection(*where[:2])
            writer.write(b"GET /page HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
            writer.close()
    finally:
        await served.server.stop()


async def test_a_port_that_is_taken_is_an_error_and_holds_nothing() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(OSError, match="in use"):
            await HttpServer({}).start("127.0.0.1", taken.getsockname()[1])

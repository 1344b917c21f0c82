"""HTTP for those who only look: GET and HEAD, one answer a connection, everything bounded.

An answer is had whole, or in pieces, as they come to be: each has to be taken in time.

A whole web framework would do it for a sixth of the memory that the agent may take (decision 0026).
Who is slow or says too much is let go, in a crowd before its time (`callers`); nobody else notices.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from gpumanager.monitor.callers import ASKING, CONNECTIONS, Callers

log = logging.getLogger(__name__)

LONGEST_HEAD: Final = 8 << 10
BACKLOG: Final = 512
HEAD_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 10.0
REST_SECONDS: Final = 0.5
REST_BYTES: Final = 64 << 10
"""What is read, and dropped, of what a caller still says when it has been answered: a connection
that is closed on unread words takes the answer with it."""

REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
METHODS: Final = ("GET", "HEAD")
ABSENT: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""A machine without IPv6 may have a name for its loopback there all the same."""
PLAIN: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """status: one of REASONS."""

    status: int = 200
    body: bytes = b""
    kind: str = PLAIN
    fields: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def say(cls, status: int, text: str = "", **fields: str) -> "Answer":
        return cls(status, f"{text or REASONS[status]}\n".encode(), fields=fields)

    def encoded(self, *, head_only: bool) -> bytes:
        length = {"Content-Length": str(len(self.body))}
        head = _head(self.status, self.kind, {**length, **self.fields})
        return head if head_only else head + self.body


class Pieces(Protocol):
    """Pieces of an answer, each when there is one; an asynchronous generator is such."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None:
        """Called in any case: there was no more, or nobody is there to take it."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer whose length nobody knows: it ends with the connection."""

    pieces: Pieces
    kind: str = PLAIN
    fields: Mapping[str, str] = field(default_factory=dict)


def _head(status: int, kind: str, fields: Mapping[str, str]) -> bytes:
    usual = {"Content-Type": kind, "Cache-Control": "no-store", "Connection": "close"}
    rows = [f"HTTP/1.1 {status} {REASONS[status]}"]
    rows += [f"{name}: {value}" for name, value in {**usual, **fields}.items()]
    return "\r\n".join([*rows, "", ""]).encode("latin-1")


Handler = Callable[[], Awaitable[Answer | Streamed]]
Plain = Callable[[], Awaitable[Answer]]
"""A handler whose answers are had whole."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds for a caller to ask, for taking its answer, and how many may at once, each."""

    head_seconds: float = HEAD_SECONDS
    answer_seconds: float = ANSWER_SECONDS
    connections: int = CONNECTIONS
    asking: int = ASKING


class HttpServer:
    """Serves `pages` by their paths."""

    def __init__(self, pages: Mapping[str, Handler], bounds: Bounds | None = None) -> None:
        self._pages = pages
        self._bounds = bounds or Bounds()
        self._servers: list[asyncio.Server] = []
        self._callers = Callers(self._bounds.asking, self._bounds.connections)

    @property
    def callers(self) -> int:
        """How many are connected now."""
        return len(self._callers)

    async def start(self, address: str, port: int) -> int:
        """Listen on every address of that name; returns the port. Raises OSError."""
        sockets = await _listening(address, port)
        for one in sockets:
            await self._listen(one)
        return int(sockets[0].getsockname()[1])

    async def start_at(self, path: Path) -> None:
        """Listen on a unix socket for our own account alone. Raises OSError."""
        await self._listen(_bound_at(path))

    async def _listen(self, one: socket.socket) -> None:
        """Connections are taken one by one, so that each is heard between two others."""
        start = asyncio.start_unix_server if one.family == socket.AF_UNIX else asyncio.start_server
        server = await start(self._accept, sock=one, limit=LONGEST_HEAD, backlog=1)
        one.listen(BACKLOG)  # that many wait, whom asyncio would have taken at once
        self._servers.append(server)

    async def stop(self) -> None:
        """Let go of everybody at once."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        await self._callers.end()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Not a coroutine: the streams' own task would log a caller that goes."""
        if not self._servers:  # stopped meanwhile
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._callers.come(writer, task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._exchange(reader, writer)
        except (OSError, TimeoutError):
            return
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, answer = await self._answer(reader, writer)
        if isinstance(answer, Streamed):
            await self._stream(writer, answer, head_only=method == "HEAD")
        else:
            await self._give(writer, answer.encoded(head_only=method == "HEAD"))
        async with asyncio.timeout(self._bounds.answer_seconds):
            writer.write_eof()
            await _rest(reader)

    async def _stream(
        self, writer: asyncio.StreamWriter, answer: Streamed, *, head_only: bool
    ) -> None:
        """Nothing is kept for who is slow but the piece that is being taken."""
        writer.transport.set_write_buffer_limits(high=0)
        try:
            await self._give(writer, _head(200, answer.kind, answer.fields))
            if not head_only:
                async for piece in answer.pieces:
                    await self._give(writer, piece)
        finally:
            await answer.pieces.aclose()

    async def _give(self, writer: asyncio.StreamWriter, words: bytes) -> None:
        """Raises TimeoutError where they are not taken."""
        self._callers.given(writer)
        async with asyncio.timeout(self._bounds.answer_seconds):
            writer.write(words)
            await writer.drain()

    async def _answer(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, Answer | Streamed]:
        """The method that was asked by, and what is answered."""
        try:
            async with asyncio.timeout(self._bounds.head_seconds):
                head = await reader.readuntil(b"\r\n\r\n")
        except TimeoutError:
            return "", Answer.say(408)
        except asyncio.LimitOverrunError:
            return "", Answer.say(431, f"more than {LONGEST_HEAD} bytes before an empty line")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise ConnectionResetError from error
            return "", Answer.say(400, "the request ends in its middle")
        if not self._callers.asked(writer):
            return "GET", Answer.say(503, "too many connections")
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        return words[0], await self._page(words)

    async def _page(self, words: list[str]) -> Answer | Streamed:
        if len(words) != 3 or not words[2].startswith("HTTP/"):  # noqa: PLR2004
            return Answer.say(400, "not an HTTP request")
        method, target, version = words
        if not version.startswith("HTTP/1."):
            return Answer.say(505)
        page = self._pages.get(target.partition("?")[0])
        if page is None:
            return Answer.say(404, "there are: " + " ".join(self._pages))
        if method not in METHODS:
            return Answer.say(405, Allow=", ".join(METHODS))
        try:
            return await page()
        except Exception:
            log.exception("%s %s", method, target[:100])
            return Answer.say(500)


async def _rest(reader: asyncio.StreamReader) -> None:
    left = REST_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REST_SECONDS):
            while left > 0 and (piece := await reader.read(left)):
                left -= len(piece)


async def _listening(address: str, port: int) -> list[socket.socket]:
    """On each address of that name that this machine has; raises OSError where there is none."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, _, _, _, where in dict.fromkeys(found):
            port = port or (int(sockets[0].getsockname()[1]) if sockets else 0)
            try:
                sockets.append(_bound(family, (where[0], port, *where[2:])))
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                missing = error
    except OSError:
        for one in sockets:
            one.close()
        raise
    if not sockets:
        raise missing or OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return sockets


def _bound(family: int, where: tuple[Any, ...]) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(where)
    except OSError:
        one.close()
        raise
    return one


def _bound_at(path: Path) -> socket.socket:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()  # of an agent before us
        os.fchmod(one.fileno(), stat.S_IRUSR | stat.S_IWUSR)  # of the file that bind makes
        one.bind(str(path))
    except OSError:
        one.close()
        raise
    return one

"""Serve an aiohttp handler on TCP, TLS or a unix socket, within bounds.

aiohttp waits without end for the head of a first request and for a caller that does not read its
answer, and accepts any number of connections. Here every connection has a time by which its caller
has to have done something, and their number is bounded. In a crowd the connection that is nearest
to its end is closed for the next one. While all are being answered, the next one waits in the
kernel's backlog: no answer is cut off for another caller.

Example: of 2,000 connections that say nothing, 256 are open at a time. A probe that comes among
them asks at once, and a connection that is being answered is not closed for others.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
import stat
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from gpumanager.errors import GpuManagerError

log = logging.getLogger(__name__)
aiohttp_log = logging.getLogger(f"{__name__}.aiohttp")
"""What aiohttp says of requests."""

VERSIONS: Final = (HttpVersion10, HttpVersion11)
BACKLOG: Final = 512
ACCEPT_RETRY_SECONDS: Final = 0.2
TLS_SHUTDOWN_SECONDS: Final = 1.0
IMMEDIATE_SECONDS: Final = 0.001
"""Seconds. To aiohttp 0 is for ever."""
ABSENT: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
"""A machine without IPv6 may have a name for its IPv6 loopback all the same."""
AIOHTTP: Final[dict[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,  # nobody sends packed bodies, and they may be bombs
    "keepalive_timeout": 3600.0,  # idle connections are closed here
    "lingering_time": 1.0,
    "logger": aiohttp_log,
    "max_line_size": 4096,
    "max_field_size": 4096,
    "max_headers": 32,
}

RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
ContextSource = Callable[[], ssl.SSLContext]
"""Called for each connection, so that a new certificate needs no restart."""


@dataclass(frozen=True, slots=True)
class ConnectionBounds:
    """How many connections, and seconds: for a TLS handshake and the first request of a connection;
    for an answer to be read by its caller; for a connection to do nothing; and, at `stop`, for what
    is being answered.

    Idle connections stay longer than Go's clients keep them, 90 s: a server that closes first may
    meet a request that is on its way, and a POST is not sent again.
    """

    connections: int = 256
    head_seconds: float = 10.0
    answer_seconds: float = 10.0
    idle_seconds: float = 180.0
    grace_seconds: float = 5.0


class _Connection(web.RequestHandler):
    """until: when its caller has to have done something; monotonic. Not while `answering`: then it
    is us who are slow. connecting: the TLS handshake, if any. unread_since: when its caller was
    found to read less than there is to send.
    """

    __slots__ = ("answering", "connecting", "unread_since", "until")

    def __init__(self, server: web.Server, until: float) -> None:
        super().__init__(server, loop=asyncio.get_running_loop(), **AIOHTTP)
        self.until = until
        self.answering = False
        self.connecting: asyncio.Task[None] | None = None
        self.unread_since: float | None = None


class BoundedServer(web.Server):
    """Answers with `handler`, at as many places as it is started at. Needs a running loop."""

    def __init__(self, handler: RequestHandler, bounds: ConnectionBounds | None = None) -> None:
        aiohttp_log.addFilter(_is_not_about_a_malformed_request)
        super().__init__(self._answer)
        self._handler = handler
        self._bounds = bounds or ConnectionBounds()
        self._open: set[_Connection] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()
        """A connection has ended, or waits for its caller."""

    @property
    def open_connections(self) -> int:
        """Return how many there are now, TLS handshakes among them."""
        return len(self._open)

    async def start(self, address: str, port: int, tls: ContextSource | None = None) -> int:
        """Listen on every address of that name; "": on all. Returns the port. Raises OSError."""
        found = await asyncio.get_running_loop().getaddrinfo(
            address or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        sockets, missing = list[socket.socket](), None
        for family, *_, (host, _, *more) in dict.fromkeys(found):
            port = port or (int(sockets[0].getsockname()[1]) if sockets else 0)
            try:
                where: Any = (host, port, *more)
                sockets.append(socket.create_server(where, family=family, backlog=BACKLOG))
            except OSError as error:
                if error.errno not in ABSENT:
                    for one in sockets:
                        one.close()
                    raise
                missing = error
        if missing and not sockets:
            raise missing
        await self._serve(sockets, tls)
        return int(sockets[0].getsockname()[1])

    async def start_at(self, path: Path) -> None:
        """Listen on a unix socket for our own account alone. Raises OSError."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - of a process before us
            os.fchmod(one.fileno(), stat.S_IRUSR | stat.S_IWUSR)  # of the file that bind makes
            one.bind(str(path))
            one.listen(BACKLOG)
            listener = one.dup()
        await self._serve([listener], None)

    async def stop(self, *, grace: bool = True) -> None:
        """Accept no more. What is being answered has `grace_seconds`, and then is cut off."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if grace:
            self.pre_shutdown()
            await self.shutdown(self._bounds.grace_seconds)
        await self.cut()

    async def cut(self) -> None:
        """End every connection now, in the middle of what it says."""
        connections = tuple(self._open)
        for connection in connections:
            self._close(connection)
        handshakes = (one.connecting for one in connections if one.connecting is not None)
        await asyncio.gather(*handshakes, return_exceptions=True)
        await self.shutdown(IMMEDIATE_SECONDS)

    async def _serve(self, sockets: list[socket.socket], tls: ContextSource | None) -> None:
        if not self._tasks:
            self._begin(self._close_late_connections())
        for listener in sockets:
            listener.setblocking(False)
            self._begin(self._accept(listener, tls))
        await asyncio.sleep(0)  # each has begun, and closes its socket when it is cancelled

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection: Any = request.protocol
        connection.answering = True
        try:
            if request.version not in VERSIONS:
                raise web.HTTPVersionNotSupported
            return await self._handler(request)
        except ConnectionError:
            if request.transport is not None and not request.transport.is_closing():
                raise  # from a client inside the handler
            return web.Response()  # the caller has gone in the middle of its answer
        finally:
            connection.answering = False
            connection.until = time.monotonic() + self._bounds.idle_seconds
            self._room.set()

    async def _accept(self, listener: socket.socket, tls: ContextSource | None) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                ready = asyncio.Event()
                loop.add_reader(listener, ready.set)
                try:
                    await ready.wait()
                finally:
                    loop.remove_reader(listener)
                while len(self._open) >= self._bounds.connections:
                    self._room.clear()
                    waiting = [one for one in self._open if not one.answering or one.writing_paused]
                    if waiting:
                        self._close(min(waiting, key=lambda one: one.until))
                    else:
                        await self._room.wait()
                try:
                    peer, _ = listener.accept()
                except BlockingIOError:  # the caller has gone already
                    continue
                except OSError as error:
                    log.warning("cannot accept a connection: %s", error)
                    await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                    continue
                connection = _Connection(self, time.monotonic() + self._bounds.head_seconds)
                self._open.add(connection)
                connecting = asyncio.create_task(self._connect(peer, connection, tls))
                connecting.add_done_callback(partial(self._connected, peer, connection))
                connection.connecting = connecting
                await asyncio.sleep(0)  # it may ask before the next one comes

    def _connected(
        self, peer: socket.socket, connection: _Connection, _: "asyncio.Task[None]"
    ) -> None:
        if connection.transport is None:  # or it was cancelled before it began
            peer.close()
            self._forget(connection)

    async def _connect(
        self, peer: socket.socket, connection: _Connection, tls: ContextSource | None
    ) -> None:
        """Wait until a TLS handshake is over."""
        times = dict[str, float]()
        if tls is not None:
            times["ssl_handshake_timeout"] = self._bounds.head_seconds
            times["ssl_shutdown_timeout"] = TLS_SHUTDOWN_SECONDS

        try:
            context = tls() if tls else None
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: connection, peer, ssl=context, **times)
        except GpuManagerError as error:
            log.warning("cannot serve a connection: %s", error)
        except OSError as error:
            log.debug("TLS handshake failed: %s", error)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if handler not in self._open:  # it was closed while its handshake came to its end
            transport.abort()

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._forget(handler)

    async def _close_late_connections(self) -> None:
        """Close connections that are past their deadline."""
        shortest = min(self._bounds.head_seconds, self._bounds.answer_seconds)
        while True:
            await asyncio.sleep(min(1.0, shortest / 2))
            now = time.monotonic()
            for connection in tuple(self._open):
                if not connection.writing_paused:
                    connection.unread_since = None
                elif connection.unread_since is None:
                    connection.unread_since = now
                unread_since = connection.unread_since
                is_stuck = unread_since and now - unread_since > self._bounds.answer_seconds
                if is_stuck or (connection.until < now and not connection.answering):
                    self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._forget(connection)
        if connection.transport is not None:
            connection.transport.abort()
        elif connection.connecting is not None:
            connection.connecting.cancel()

    def _forget(self, connection: Any) -> None:
        self._open.discard(connection)
        self._room.set()


def _is_not_about_a_malformed_request(record: logging.LogRecord) -> bool:
    """Return whether to log it: a malformed request is its sender's mistake, and answered so."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))

"""Limits on connections that aiohttp has not: how many there are, and how long each may take.

aiohttp waits without end for the head of a first request and for a client that does not read its
response, and accepts any number of connections (decision 0041). So connections are accepted here
one by one, TLS handshakes included, and each has a deadline. At the limit the connection nearest to
its deadline is closed for the next one; where all are being answered the next one waits: no client
that is being answered is cut off for another.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gpumanager.errors import GpuManagerError
from gpumanager.scheduler.http.bounds import Bounds

log = logging.getLogger(__name__)
protocol_log = logging.getLogger(f"{__name__}.protocol")
"""For aiohttp, which logs a traceback for each malformed request."""

BACKLOG: Final = 512
AGAIN_SECONDS: Final = 0.2
SHUTDOWN_SECONDS: Final = 1.0
"""For a caller to agree that TLS ends."""
HTTP: Final[Mapping[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": 3600.0,
    "lingering_time": 1.0,
    "logger": protocol_log,
    "max_line_size": 4096,
    "max_field_size": 4096,
    "max_headers": 32,
}
"""Packed bodies are not unpacked: nobody sends them, and they may be bombs. Idle connections are
ended here. A head has 128 KiB at most."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Contexts = Callable[[], ssl.SSLContext]
"""Asked for each connection, so that a new certificate needs no restart."""
Connection = web.RequestHandler | asyncio.Task[None]
"""One that is open, or the handshake that may become one."""


class ConnectionLimiter(web.Server):
    """Accepts connections within `bounds`. handler: answers requests."""

    def __init__(self, handler: Handler, bounds: Bounds) -> None:
        protocol_log.addFilter(_not_malformed)
        super().__init__(handler, **HTTP)
        self._bounds = bounds
        self._deadlines: dict[Connection, float] = {}
        """Monotonic seconds; infinite while a request is being answered."""
        self._transports: dict[web.RequestHandler, asyncio.Transport] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._free = asyncio.Event()
        """A connection was closed, or has become idle."""

    @property
    def open_connections(self) -> int:
        """Handshakes included."""
        return len(self._deadlines)

    async def open(self, address: str, port: int, tls: Contexts | None = None) -> int:
        """Listen, until `close`; returns the port. tls: None for plain HTTP. Raises OSError."""
        listener = await _listening(address, port)
        listener.setblocking(False)
        self._tasks.append(asyncio.create_task(self._accept(listener, tls)))
        self._tasks.append(asyncio.create_task(self._close_late()))
        return int(listener.getsockname()[1])

    async def close(self) -> None:
        """Accept no more; requests that are being answered have `grace_seconds` to end."""
        handshakes = (one for one in self._deadlines if isinstance(one, asyncio.Task))
        for task in (*self._tasks, *handshakes):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.pre_shutdown()
        await self.shutdown(self._bounds.grace_seconds)

    def busy(self, connection: web.RequestHandler) -> None:
        """Its request is being answered: it has no deadline until then."""
        self._deadlines[connection] = float("inf")

    def idle(self, connection: web.RequestHandler) -> None:
        """It was answered, has the response to read, and may send another request."""
        if connection in self._transports:
            self._deadlines[connection] = time.monotonic() + self._bounds.idle_seconds
            self._free.set()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports[handler] = transport
        self._deadlines[handler] = time.monotonic() + self._bounds.head_seconds

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self._transports.pop(handler, None)
        self._forget(handler)

    async def _accept(self, listener: socket.socket, tls: Contexts | None) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:  # too many open files, or gone already
                    log.warning("cannot accept a connection: %s", error)
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                try:
                    await self._wait_for_place()
                except asyncio.CancelledError:
                    connection.close()
                    raise
                handshake = asyncio.create_task(self._handshake(connection, tls))
                self._deadlines[handshake] = time.monotonic() + self._bounds.head_seconds
                handshake.add_done_callback(self._forget)
                await asyncio.sleep(0)  # it has begun, and closes what it was given

    async def _wait_for_place(self) -> None:
        """Returns when there is a place."""
        while len(self._deadlines) >= self._bounds.connections:
            self._free.clear()
            nearest = min(self._deadlines, key=self._deadlines.__getitem__)
            if self._deadlines[nearest] < float("inf"):
                self._abort(nearest)
            else:
                await self._free.wait()

    async def _handshake(self, connection: socket.socket, tls: Contexts | None) -> None:
        seconds = self._bounds.head_seconds
        times = {"ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": SHUTDOWN_SECONDS}
        loop = asyncio.get_running_loop()
        try:
            context = tls() if tls else None
        except GpuManagerError as error:
            log.warning("cannot serve a connection: %s", error)
            connection.close()
            return
        bounded = times if context else {}
        try:
            await loop.connect_accepted_socket(self, connection, ssl=context, **bounded)
        except OSError as error:
            log.debug("TLS handshake failed: %s", error)

    async def _close_late(self) -> None:
        shortest = min(self._bounds.head_seconds, self._bounds.answer_seconds)
        while True:
            await asyncio.sleep(min(1.0, shortest / 2))
            now = time.monotonic()
            for connection, deadline in tuple(self._deadlines.items()):
                if deadline < now or self._is_stuck(connection, deadline, now):
                    self._abort(connection)

    def _is_stuck(self, connection: Connection, deadline: float, now: float) -> bool:
        """It was answered `answer_seconds` ago and still has not read the response."""
        if isinstance(connection, asyncio.Task) or not connection.writing_paused:
            return False
        answered = deadline - self._bounds.idle_seconds
        return answered + self._bounds.answer_seconds < now

    def _abort(self, connection: Connection) -> None:
        self._forget(connection)
        if isinstance(connection, asyncio.Task):
            connection.cancel()
        elif transport := self._transports.get(connection):
            transport.abort()

    def _forget(self, connection: Connection) -> None:
        self._deadlines.pop(connection, None)
        self._free.set()


def _not_malformed(record: logging.LogRecord) -> bool:
    """A request that is none is its sender's trouble, who is told."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


async def _listening(address: str, port: int) -> socket.socket:
    if not address and socket.has_dualstack_ipv6():
        both = socket.AF_INET6
        return socket.create_server(("", port), family=both, dualstack_ipv6=True, backlog=BACKLOG)
    loop, kind = asyncio.get_running_loop(), socket.SOCK_STREAM
    found = await loop.getaddrinfo(address or "0.0.0.0", port, type=kind)
    family, first = found[0][0], found[0][4]
    return socket.create_server((str(first[0]), port), family=family, backlog=BACKLOG)

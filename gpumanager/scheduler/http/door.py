"""Who may be connected, and for how long.

aiohttp waits without end for the head of a first request and for a caller that does not take its
answer, and has no bound on how many there are (decision 0041). So connections are taken here one by
one, handshakes among them, and each has a time by which something has to have happened. In a crowd
the one that is nearest to its end gives way, and where all are being answered who comes next waits:
nobody who is being answered is cut off for another.
"""

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from gpumanager.errors import GpuManagerError
from gpumanager.scheduler.http.bounds import Bodies, Bounds
from gpumanager.scheduler.http.plain import PlainCaller, Reply, Verb

log = logging.getLogger(__name__)
spoken = logging.getLogger(f"{__name__}.spoken")
"""What aiohttp says of requests: at length, about each that is none."""

BACKLOG: Final = 512
AGAIN_SECONDS: Final = 0.2
SHUTDOWN_SECONDS: Final = 1.0
"""For a caller to agree that TLS ends."""
HTTP: Final[Mapping[str, Any]] = {
    "access_log": None,
    "auto_decompress": False,
    "keepalive_timeout": 3600.0,
    "lingering_time": 1.0,
    "logger": spoken,
    "max_line_size": 4096,
    "max_field_size": 4096,
    "max_headers": 32,
}
"""Packed bodies are not unpacked: nobody sends them, and they may be bombs. Idle connections are
ended here. A head has 128 KiB at most."""

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Contexts = Callable[[], ssl.SSLContext]
"""Asked for each connection, so that a new certificate needs no restart."""
Connected = web.RequestHandler | PlainCaller
Caller = Connected | asyncio.Task[None]
"""A connection, or the handshake that may become one."""


class Door(web.Server):
    """Lets callers in, and knows of each by when it has to have done something.

    verbs: what is answered without ceremony, by path. late: what is said to whose body does not
    come. admits: whose verbs are answered so; all that others say is the handler's.
    """

    def __init__(
        self,
        handler: Handler,
        bounds: Bounds,
        bodies: Bodies,
        verbs: Mapping[bytes, Verb],
        late: Reply,
        *,
        admits: Callable[[asyncio.BaseTransport], bool] | None = None,
    ) -> None:
        spoken.addFilter(_not_about_callers)
        super().__init__(handler, **HTTP)
        self._bounds = bounds
        self._admits = admits
        self._plain = verbs, late, bounds, bodies
        self._until: dict[Caller, float] = {}
        self._transports: dict[Connected, asyncio.Transport] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._room = asyncio.Event()
        """Somebody left, or has become idle."""

    @property
    def callers(self) -> int:
        """How many there are now, handshakes among them."""
        return len(self._until)

    async def open(self, address: str, port: int, tls: Contexts | None = None) -> int:
        """Listen, until `close`; returns the port. tls: None for plain HTTP. Raises OSError."""
        listener = await _listening(address, port)
        listener.setblocking(False)
        self._tasks.append(asyncio.create_task(self._accept(listener, tls)))
        self._tasks.append(asyncio.create_task(self._sweep()))
        return int(listener.getsockname()[1])

    async def close(self) -> None:
        """Let nobody in any more; who is being answered gets the answer, within the bounds."""
        handshakes = (one for one in self._until if isinstance(one, asyncio.Task))
        for task in (*self._tasks, *handshakes):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.pre_shutdown()
        plain = [one for one in self._until if isinstance(one, PlainCaller)]
        seconds = self._bounds.grace_seconds
        await asyncio.gather(self.shutdown(seconds), _end(plain, seconds))

    def busy(self, connection: Connected) -> None:
        """Its request is being answered: we are the slow ones now."""
        self._until[connection] = float("inf")

    def idle(self, connection: Connected) -> None:
        """It has its answer to take, and may ask again."""
        if connection in self._transports:
            self._until[connection] = time.monotonic() + self._bounds.idle_seconds
            self._room.set()

    def greet(self) -> asyncio.Protocol:
        """Who speaks with somebody who comes."""
        return PlainCaller(self, *self._plain) if self._plain[0] else self()

    def admits(self, transport: asyncio.Transport) -> bool:
        return self._admits is None or self._admits(transport)

    def arrived(self, caller: PlainCaller, transport: asyncio.Transport) -> None:
        self._transports[caller] = transport
        self._until[caller] = time.monotonic() + self._bounds.head_seconds

    def left(self, caller: PlainCaller) -> None:
        self._transports.pop(caller, None)
        self._forget(caller)

    def hand_over(self, caller: PlainCaller, transport: asyncio.Transport) -> asyncio.Protocol:
        """To aiohttp, which has no more time for it than there was."""
        until, handler = self._until[caller], self()
        self.left(caller)
        transport.set_protocol(handler)
        handler.connection_made(transport)
        self._until[handler] = until
        return handler

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self._transports[handler] = transport
        self._until[handler] = time.monotonic() + self._bounds.head_seconds

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
                    log.warning("a connection could not be taken: %s", error)
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                try:
                    await self._make_room()
                except asyncio.CancelledError:
                    connection.close()
                    raise
                meeting = asyncio.create_task(self._meet(connection, tls))
                self._until[meeting] = time.monotonic() + self._bounds.head_seconds
                meeting.add_done_callback(self._forget)
                await asyncio.sleep(0)  # it has begun, and closes what it was given

    async def _make_room(self) -> None:
        """Returns when there is a place."""
        while len(self._until) >= self._bounds.connections:
            self._room.clear()
            nearest = min(self._until, key=self._until.__getitem__)
            if self._until[nearest] < float("inf"):
                self._let_go(nearest)
            else:
                await self._room.wait()

    async def _meet(self, connection: socket.socket, tls: Contexts | None) -> None:
        seconds = self._bounds.head_seconds
        times = {"ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": SHUTDOWN_SECONDS}
        loop = asyncio.get_running_loop()
        try:
            context = tls() if tls else None
        except GpuManagerError as error:
            log.warning("nobody can be served: %s", error)
            connection.close()
            return
        bounded = times if context else {}
        try:
            await loop.connect_accepted_socket(self.greet, connection, ssl=context, **bounded)
        except OSError as error:
            log.debug("no handshake: %s", error)

    async def _sweep(self) -> None:
        """Let go of those whose time is over."""
        shortest = min(self._bounds.head_seconds, self._bounds.answer_seconds)
        while True:
            await asyncio.sleep(min(1.0, shortest / 2))
            now = time.monotonic()
            for caller, until in tuple(self._until.items()):
                if until < now or self._is_stuck(caller, until, now):
                    self._let_go(caller)

    def _is_stuck(self, caller: Caller, until: float, now: float) -> bool:
        """It was answered, and does not take the answer."""
        if isinstance(caller, asyncio.Task) or not caller.writing_paused:
            return False
        answered = until - self._bounds.idle_seconds
        return answered + self._bounds.answer_seconds < now

    def _let_go(self, caller: Caller) -> None:
        self._forget(caller)
        if isinstance(caller, asyncio.Task):
            caller.cancel()
        elif transport := self._transports.get(caller):
            transport.abort()

    def _forget(self, caller: Caller) -> None:
        self._until.pop(caller, None)
        self._room.set()


async def _end(callers: Sequence[PlainCaller], seconds: float) -> None:
    """Who is being answered gets the answer, if it comes in time."""
    answering = [one.answering for one in callers if one.answering]
    if answering:
        await asyncio.wait(answering, timeout=seconds)
    for one in callers:
        one.end()


def _not_about_callers(record: logging.LogRecord) -> bool:
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

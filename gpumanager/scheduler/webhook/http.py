"""HTTP for the API server: requests with bodies, connections that stay, TLS; everything bounded.

A crowd is served in turn: when all places are taken, the connection that has been idle the longest
gives way, and who comes next waits until somebody leaves. Nobody who is being answered is cut off
for another; who is slow, or says too much, is told so and let go.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from gpumanager.scheduler.webhook.http_words import Answer, Call, Refused, body_length, parsed

log = logging.getLogger(__name__)

LONGEST_HEAD: Final = 16 << 10
LONGEST_BODY: Final = 4 << 20
"""The API server takes 3 MiB itself, and wraps them."""
REST_BYTES: Final = 2 * LONGEST_BODY
REST_SECONDS: Final = 2.0
"""How much is read, and dropped, of what a refused caller still says: a connection that is closed
on unread words takes the answer with it."""
SHUTDOWN_SECONDS: Final = 1.0
BACKLOG: Final = 512
AGAIN_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds: for a handshake, a head, a body, to take an answer; between two requests (longer
    than clients keep connections, so that it is they who close); for who is answered at the end.

    connections: at once. bodies: bytes of all bodies together.
    """

    handshake: float = 5.0
    head: float = 5.0
    body: float = 10.0
    answer: float = 10.0
    idle: float = 180.0
    grace: float = 5.0
    connections: int = 128
    bodies: int = 32 << 20


Handler = Callable[[Call], Awaitable[Answer]]
Routes = Mapping[str, Mapping[str, Handler]]
"""By path, then by method."""


class Caller:
    """One connection and its streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.idle = True
        self.answers = 0

    def leave(self) -> None:
        self.writer.transport.abort()


class HttpServer:
    """Serves `routes`. tls: asked for each connection, so that a new certificate needs no restart;
    None: without."""

    def __init__(
        self,
        routes: Routes,
        bounds: Bounds | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._routes = routes
        self._bounds = bounds or Bounds()
        self._tls = tls
        self._listening: list[asyncio.Task[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._callers: dict[Caller, None] = {}
        self._left = asyncio.Event()
        self._stopping = False
        self._bodies = 0

    @property
    def connections(self) -> int:
        """How many there are now, handshakes among them."""
        return len(self._tasks)

    async def start(self, address: str, port: int) -> int:
        """Listen; returns the port. Raises OSError."""
        listener = await _listening(address, port)
        listener.setblocking(False)
        self._listening.append(asyncio.create_task(self._accept(listener)))
        return int(listener.getsockname()[1])

    async def stop(self) -> None:
        """Nobody new is let in; who is being answered gets the answer, within `grace`."""
        self._stopping = True
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        for caller in [one for one in self._callers if one.idle]:
            caller.leave()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._bounds.grace)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
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
                    await self._room()
                except asyncio.CancelledError:
                    connection.close()
                    raise
                task = asyncio.create_task(self._serve(connection))
                self._tasks.add(task)
                task.add_done_callback(self._gone)

    async def _room(self) -> None:
        """Returns when there is a place."""
        while len(self._tasks) >= self._bounds.connections:
            self._left.clear()
            idle = next((one for one in self._callers if one.idle), None)
            if idle is not None:
                idle.leave()
            await self._left.wait()

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._left.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a connection failed", exc_info=error)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            caller = await self._meet(connection)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            log.debug("no handshake: %s", error)
            return
        self._callers[caller] = None
        try:
            while await self._exchange(caller):
                self._callers[caller] = self._callers.pop(caller)  # the last to be idle
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return
        finally:
            self._callers.pop(caller)
            caller.leave()
            with contextlib.suppress(OSError):
                await caller.writer.wait_closed()

    async def _meet(self, connection: socket.socket) -> Caller:
        """The handshake. Raises OSError, TimeoutError."""
        loop, seconds = asyncio.get_running_loop(), self._bounds.handshake
        reader = asyncio.StreamReader(limit=LONGEST_HEAD)
        protocol = asyncio.StreamReaderProtocol(reader)
        tls = {"ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": SHUTDOWN_SECONDS}
        try:
            context = self._tls() if self._tls else None
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=context, **(tls if context else {})
            )
        except BaseException:
            connection.close()
            raise
        return Caller(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    async def _exchange(self, caller: Caller) -> bool:
        """One request and its answer; whether another may follow."""
        call, held = Call("", "", last=True), 0
        try:
            call = await self._head(caller)
            length = body_length(call)
            held = self._hold(length)
            call = await self._with_body(caller, call, length)
            answer = await self._answer(call)
        except Refused as refused:
            call, answer = Call(call.method, call.path, last=True), refused.answer
        finally:
            self._bodies -= held
        last = call.last or self._stopping
        async with asyncio.timeout(self._bounds.answer):
            caller.writer.write(answer.encoded(last=last, head_only=call.method == "HEAD"))
            await caller.writer.drain()
        if last:
            await _rest(caller)
        caller.idle, caller.answers = True, caller.answers + 1
        return not last

    async def _head(self, caller: Caller) -> Call:
        bounds = self._bounds
        async with asyncio.timeout(bounds.idle if caller.answers else bounds.head):
            first = await caller.reader.readexactly(1)
        caller.idle = False
        try:
            async with asyncio.timeout(bounds.head):
                return parsed(first + await caller.reader.readuntil(b"\r\n\r\n"))
        except TimeoutError:
            raise Refused(408) from None
        except asyncio.LimitOverrunError:
            raise Refused(431, f"more than {LONGEST_HEAD} bytes before an empty line") from None
        except asyncio.IncompleteReadError:
            raise Refused(400, "the request ends in its middle") from None

    def _hold(self, length: int) -> int:
        if length > LONGEST_BODY:
            raise Refused(413, f"more than {LONGEST_BODY} bytes")
        if self._bodies + length > self._bounds.bodies:
            raise Refused(503, "too many large requests at once")
        self._bodies += length
        return length

    async def _with_body(self, caller: Caller, call: Call, length: int) -> Call:
        if call.fields.get("expect", "").lower() == "100-continue":
            caller.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(self._bounds.body):
                body = await caller.reader.readexactly(length)
        except TimeoutError:
            raise Refused(408) from None
        except asyncio.IncompleteReadError:
            raise Refused(400, "the body ends before its length") from None
        return Call(call.method, call.path, call.fields, body, call.last)

    async def _answer(self, call: Call) -> Answer:
        page = self._routes.get(call.path)
        if page is None:
            return Answer.say(404, "there are: " + " ".join(self._routes))
        handler = page.get("GET" if call.method == "HEAD" else call.method)
        if handler is None:
            return Answer.say(405, Allow=", ".join(page))
        try:
            return await handler(call)
        except Exception:
            log.exception("%s %s", call.method, call.path)
            return Answer.say(500)


async def _listening(address: str, port: int) -> socket.socket:
    if not address and socket.has_dualstack_ipv6():
        both = socket.AF_INET6
        return socket.create_server(("", port), family=both, dualstack_ipv6=True, backlog=BACKLOG)
    loop, kind = asyncio.get_running_loop(), socket.SOCK_STREAM
    found = await loop.getaddrinfo(address or "0.0.0.0", port, type=kind)
    family, first = found[0][0], found[0][4]
    return socket.create_server((str(first[0]), port), family=family, backlog=BACKLOG)


async def _rest(caller: Caller) -> None:
    left = REST_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REST_SECONDS):
            if caller.writer.can_write_eof():
                caller.writer.write_eof()
            while left > 0 and (piece := await caller.reader.read(left)):
                left -= len(piece)

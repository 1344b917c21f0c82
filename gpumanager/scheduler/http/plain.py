"""Requests in their plainest form are answered without ceremony; whatever else comes is aiohttp's.

kube-scheduler asks two or three times for each pod, always alike: a POST with a length, fields that
ask for nothing, and a body. Such a request is known by its head, its body is collected, and one
write answers it; the objects, tasks and timers that HTTP in general needs took longer than to find
the answer. A connection is spoken with here for as long as it is plain. The first head that is not,
or that does not come in one piece, is handed to aiohttp as it came, and with it the connection.
"""

import asyncio
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol, cast

from gpumanager.scheduler.http.bounds import Bodies, Bounds

LONGEST_HEAD: Final = 4096
AHEAD: Final = 64 << 10
"""Bytes that are taken from who asks on while we are busy."""
FIELDS: Final = frozenset(
    (b"host", b"user-agent", b"accept", b"accept-encoding", b"content-type", b"content-length")
)
"""Those that change nothing about how a request is read."""
_HEAD: Final = re.compile(
    rb"POST (/[a-z/]*) HTTP/1\.1\r\n((?:[A-Za-z-]+: [\x21-\x7e][\x20-\x7e]*\r\n)+)\r\n"
)
_LENGTH: Final = re.compile(rb"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer in JSON. close: the connection ends with it."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    close: bool = False

    def encoded(self) -> bytes:
        """As it goes on the wire."""
        rows = [f"{name}: {text}\r\n" for name, text in self.headers.items()]
        if self.close:
            rows.append("Connection: close\r\n")
        phrase, more = HTTPStatus(self.status).phrase, "".join(rows)
        head = (
            f"HTTP/1.1 {self.status} {phrase}\r\nContent-Type: application/json\r\n"
            f"Date: {_date(int(time.time()))}\r\n{more}Content-Length: {len(self.body)}\r\n\r\n"
        )
        return head.encode("latin-1") + self.body


Verb = Callable[[bytes], Reply | Awaitable[Reply]]
"""Answers a body, at once or in time. Raises nothing."""


class Head(NamedTuple):
    """Of a plain request. path: without anything behind it. at: where its body begins."""

    path: bytes
    length: int
    at: int


def read_head(said: bytes | bytearray) -> Head | None:
    """None where it is not plain, or not all there."""
    found = _HEAD.match(said, 0, LONGEST_HEAD)
    if found is None:
        return None
    fields: dict[bytes, bytes] = {}
    for row in found[2].split(b"\r\n")[:-1]:
        name, _, text = row.partition(b": ")
        name = name.lower()
        if name in fields or name not in FIELDS:
            return None
        fields[name] = text
    length = fields.get(b"content-length", b"")
    if b"host" not in fields or not _LENGTH.fullmatch(length):
        return None
    return Head(found[1], int(length), found.end())


class Keeper(Protocol):
    """Who knows of all connections; the door. admits: whether its verbs are answered here."""

    def admits(self, transport: asyncio.Transport) -> bool: ...
    def arrived(self, caller: "PlainCaller", transport: asyncio.Transport) -> None: ...
    def left(self, caller: "PlainCaller") -> None: ...
    def busy(self, caller: "PlainCaller") -> None: ...
    def idle(self, caller: "PlainCaller") -> None: ...
    def hand_over(self, caller: "PlainCaller", transport: asyncio.Transport) -> asyncio.Protocol:
        """Who speaks with it from now on, and has been told of the connection."""
        ...


class PlainCaller(asyncio.Protocol):
    """One connection. verbs: by path. late: what is said to whose body does not come."""

    def __init__(
        self,
        keeper: Keeper,
        verbs: Mapping[bytes, Verb],
        late: Reply,
        bounds: Bounds,
        bodies: Bodies,
    ) -> None:
        self.writing_paused = False
        self.answering: asyncio.Task[None] | None = None
        self._keeper = keeper
        self._verbs = verbs
        self._late = late
        self._bounds = bounds
        self._bodies = bodies
        self._said = bytearray()
        self._head: Head | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not self._keeper.admits(self._transport):
            self._verbs = {}
        self._keeper.arrived(self, self._transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._collected()
        if self._head is not None and self.answering is None:
            self._bodies.give_back(self._head.length)
            self._head = None
        self._keeper.left(self)

    def data_received(self, data: bytes) -> None:
        self._said += data
        self._go_on()

    def pause_writing(self) -> None:
        self.writing_paused = True

    def resume_writing(self) -> None:
        self.writing_paused = False
        self._go_on()

    def end(self) -> None:
        """What was answered is still sent."""
        self._transport.close()

    def _go_on(self) -> None:
        while self._said and not self._transport.is_closing():
            if self.answering or self.writing_paused:
                if len(self._said) > AHEAD:
                    self._transport.pause_reading()
                return
            if self._head is None:
                self._head = self._begin()
            if self._head is None:
                self._hand_over()
                return
            if not self._is_complete(self._head):
                return
        self._transport.resume_reading()

    def _begin(self) -> Head | None:
        """Of a plain request for which there is room."""
        head = read_head(self._said)
        if head is None or head.path not in self._verbs or head.length > self._bounds.body:
            return None
        return head if self._bodies.take(head.length) else None

    def _is_complete(self, head: Head) -> bool:
        """Whether all of it has come; then it is being answered, or was."""
        end = head.at + head.length
        if len(self._said) < end:
            if self._timer is None:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(self._bounds.body_seconds, self._too_late)
            return False
        self._collected()
        body = bytes(memoryview(self._said)[head.at : end])
        del self._said[:end]
        found = self._verbs[head.path](body)
        if isinstance(found, Reply):
            self._tell(found)
        else:
            self._keeper.busy(self)
            self.answering = asyncio.create_task(self._tell_later(found))
        return True

    def _collected(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._timer = None
        self._said.clear()
        self._tell(self._late)

    async def _tell_later(self, found: Awaitable[Reply]) -> None:
        reply = await found
        self.answering = None
        self._tell(reply)
        self._go_on()

    def _tell(self, reply: Reply) -> None:
        if self._head is not None:
            self._bodies.give_back(self._head.length)
            self._head = None
        if self._transport.is_closing():
            return
        self._transport.write(reply.encoded())
        self._keeper.idle(self)
        if reply.close:
            self._transport.close()

    def _hand_over(self) -> None:
        """It speaks in a way that is not ours."""
        other = self._keeper.hand_over(self, self._transport)
        if self.writing_paused:
            other.pause_writing()
        said, self._said = bytes(self._said), bytearray()
        self._transport.resume_reading()
        other.data_received(said)


@lru_cache(maxsize=2)
def _date(second: int) -> str:
    return formatdate(second, usegmt=True)

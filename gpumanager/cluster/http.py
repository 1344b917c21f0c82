"""HTTP/1.1 as a client of one server, on the agent's own loop: no threads, cancelled at once.

The official client would do it, at a third of the memory the whole agent may take (decision 0025).
One connection for each exchange, unless they are `Kept`; no proxies, no redirects. Times are
bounded by the caller; sizes are bounded here.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

LONGEST_HEAD: Final = 1 << 16
LONGEST_LINE: Final = 16 << 20
"""An object of the API server is a few MiB at most; etcd takes no larger ones."""
LONGEST_BODY: Final = 64 << 20
CHUNK: Final = 1 << 16
FIRST_FINAL_STATUS: Final = 200

KEEP_ALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A server that vanished without a word is noticed within a minute."""


class HttpBroken(Exception):
    """The peer does not speak HTTP as we know it, or says more than we read."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A server to connect to. tls: None for plain HTTP; name: as its certificate has it."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    name: str | None = None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Request:
    """target: path and query. headers: beside those that every request has."""

    method: str
    target: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encoded(self, peer: Peer, *, last: bool = True) -> bytes:
        """last: on its connection."""
        closing = {"Connection": "close"} if last else {}
        fields = {"Host": peer.authority, **closing, **self.headers}
        if self.body:
            fields["Content-Length"] = str(len(self.body))
        head = [f"{self.method} {self.target} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
        return "\r\n".join([*head, "", ""]).encode("latin-1") + self.body


@dataclass(frozen=True, slots=True)
class Stream:
    """A connection to a server."""

    peer: Peer
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def usable(self) -> bool:
        """As far as we know."""
        return not self.reader.at_eof() and not self.writer.is_closing()

    def end(self) -> None:
        """Nothing is owed to a peer that has answered."""
        self.writer.transport.abort()


class Streams(Protocol):
    """Connections that were used before; `Kept`."""

    def take(self, peer: Peer) -> Stream | None: ...
    def put(self, stream: Stream) -> None: ...


class Fields:
    """Of an answer's head, by name in any letters; the first of a name counts."""

    def __init__(self, rows: Iterable[str]) -> None:
        self._texts: dict[str, str] = {}
        for row in rows:
            name, _, text = row.partition(":")
            self._texts.setdefault(name.strip().lower(), text.strip())

    def get(self, name: str, default: str = "") -> str:
        return self._texts.get(name.lower(), default)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts


class Response:
    """The answer; its body is read once, whole or line by line. Raises HttpBroken and OSError.

    complete: it was read to its end, and the server goes on listening.
    """

    def __init__(self, status: int, headers: Fields, reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self.complete = False
        self._reader = reader

    async def read(self) -> bytes:
        """The whole body."""
        body = bytearray()
        async for piece in self.pieces():
            body += piece
            if len(body) > LONGEST_BODY:
                raise HttpBroken(f"an answer of more than {LONGEST_BODY} bytes")
        return bytes(body)

    async def lines(self) -> AsyncGenerator[bytes]:
        """Each line as it comes; what is left at the end is half a line and is dropped."""
        rest = bytearray()
        async for piece in self.pieces():
            rest += piece
            while (end := rest.find(b"\n")) >= 0:
                yield bytes(rest[:end])
                del rest[: end + 1]
            if len(rest) > LONGEST_LINE:
                raise HttpBroken(f"a line of more than {LONGEST_LINE} bytes")

    def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        if self.headers.get("Transfer-Encoding").lower() == "chunked":
            return self._chunks()
        if "Content-Length" not in self.headers:
            return self._up_to(LONGEST_BODY * 2)
        return self._up_to(_number(self.headers.get("Content-Length"), 10))

    async def _up_to(self, length: int) -> AsyncIterator[bytes]:
        declared = "Content-Length" in self.headers
        while length:
            piece = await self._reader.read(min(CHUNK, length))
            if not piece:
                if declared:
                    raise HttpBroken("the connection ended in the middle of an answer")
                return
            length -= len(piece)
            yield piece
        self.complete = declared and self._goes_on

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := _number((await self._line()).partition(b";")[0].decode("latin-1"), 16):
            while size:
                piece = await self._reader.read(min(CHUNK, size))
                if not piece:
                    raise HttpBroken("the connection ended in the middle of an answer")
                size -= len(piece)
                yield piece
            await self._line()
        if self._goes_on:
            self.complete = await self._reader.readline() == b"\r\n"

    @property
    def _goes_on(self) -> bool:
        return self.headers.get("Connection").lower() != "close"

    async def _line(self) -> bytes:
        line = await self._reader.readline()
        if not line.endswith(b"\n"):
            raise HttpBroken("the connection ended in the middle of an answer")
        return line


@asynccontextmanager
async def exchange(
    peer: Peer, request: Request, kept: Streams | None = None
) -> AsyncIterator[Response]:
    """Send `request`; what is read of the answer is read in the block. Raises as Response does.

    kept: where a connection may come from, and goes to; else it is closed at the block's end.
    """
    stream = (kept.take(peer) if kept else None) or await _connected(peer)
    reusable = False
    try:
        stream.writer.write(request.encoded(peer, last=kept is None))
        await stream.writer.drain()
        response = await _response(stream.reader)
        yield response
        reusable = response.complete
    except (asyncio.LimitOverrunError, ValueError) as error:
        raise HttpBroken(f"not HTTP: {error}") from error
    except asyncio.IncompleteReadError as error:
        raise HttpBroken(f"the connection ended before an answer: {error!r}") from error
    finally:
        if kept and reusable:
            kept.put(stream)
        else:
            stream.end()


async def _connected(peer: Peer) -> Stream:
    reader, writer = await asyncio.open_connection(
        peer.host,
        peer.port,
        ssl=peer.tls,
        server_hostname=(peer.name or peer.host) if peer.tls else None,
        limit=LONGEST_HEAD,
    )
    _keep_alive(writer)
    return Stream(peer, reader, writer)


async def _response(reader: asyncio.StreamReader) -> Response:
    status = 0
    while status < FIRST_FINAL_STATUS:  # 100 and 103 come before the answer
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rows = head.decode("latin-1").splitlines()
        words = first.split(None, 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1."):  # noqa: PLR2004
            raise HttpBroken("the peer does not speak HTTP/1")
        status = _number(words[1], 10)
    return Response(status, Fields(rows), reader)


def _number(text: str, radix: int) -> int:
    try:
        number = int(text.strip(), radix)
    except ValueError:
        number = -1
    if number < 0:
        raise HttpBroken(f"{text[:40]!r} where a number should be")
    return number


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    connection = writer.get_extra_info("socket")
    for level, option, value in KEEP_ALIVE:
        with contextlib.suppress(OSError):
            connection.setsockopt(level, option, value)

"""A server of ours that may be attacked, and conversations with it, byte by byte."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gpumanager.http_server import ContextSource
from gpumanager.scheduler.certificates.x509 import issue, make_authority
from gpumanager.scheduler.http.server import Bounds, HttpServer
from gpumanager.scheduler.webhook.policy import AdmissionPolicy
from gpumanager.scheduler.webhook.service import Webhook
from gpumanager.sim.cluster.server import SimulatedApiServer
from tests.scheduler.scheduler_world import node_object, pod_object
from tests.scheduler.served_extender import serving as serving_extender
from tests.scheduler.webhook.review_texts import node_kind, review
from tests.scheduler.webhook.review_texts import pod as webhook_pod

LET_GO = "let go"
"""The connection ended without an answer."""
SECONDS = 120.0
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True)
class Target:
    """posts, gets: its paths. good: a request and what its answer must have."""

    port: int
    posts: tuple[str, ...]
    gets: tuple[str, ...]
    good: tuple[str, Any, str]
    connections: Callable[[], int]
    reading: Callable[[], int]
    tls: ssl.SSLContext | None = None

    async def open(self, receives: int = 1 << 16) -> Streams:
        """receives: bytes that the kernel takes for us before we read them."""
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
        end.setblocking(False)
        await asyncio.get_running_loop().sock_connect(end, ("127.0.0.1", self.port))
        host = "localhost" if self.tls else None
        return await asyncio.open_connection(sock=end, ssl=self.tls, server_hostname=host)

    async def lives(self) -> None:
        """It answers a good request as ever; a try that was too slow for its bounds is repeated."""
        path, content, wanted = self.good
        body = json.dumps(content).encode()
        async with asyncio.timeout(SECONDS):
            while True:
                answer = await self.ask(request("POST", path, body, closing=True))
                if wanted in answer:
                    return
                await asyncio.sleep(0.05)

    async def ask(self, words: bytes) -> str:
        """All that is answered; nothing where the connection is cut."""
        answer = b""
        with contextlib.suppress(OSError):
            reader, writer = await self.open()
            writer.write(words)
            with contextlib.suppress(OSError):
                while piece := await reader.read(1 << 16):
                    answer += piece
            writer.transport.abort()
        return answer.decode("latin-1")


def request(
    method: str, path: str, body: bytes = b"", *fields: str, closing: bool = False
) -> bytes:
    """On the wire."""
    rows = [f"{method} {path} HTTP/1.1", "Host: x", "Content-Type: application/json", *fields]
    rows += ["Connection: close"] if closing else []
    rows += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
    return "\r\n".join([*rows, "", ""]).encode() + body


@dataclass(frozen=True)
class Drip:
    """A byte at a time, for ever."""

    byte: bytes = b"x"


Said = tuple[bytes | Drip, ...]


async def conversation(target: Target, said: Said) -> str:
    """Say this; returns the status of the answer, or LET_GO."""
    try:
        reader, writer = await target.open()
    except OSError:
        return LET_GO
    talking = asyncio.create_task(_talk(writer, said))
    try:
        async with asyncio.timeout(SECONDS):
            line = await reader.readline()
    except OSError:
        line = b""
    finally:
        talking.cancel()
        writer.transport.abort()
        await asyncio.gather(talking, return_exceptions=True)
    return line.split()[1].decode() if line else LET_GO


async def _talk(writer: asyncio.StreamWriter, said: Said) -> None:
    for piece in said:
        if isinstance(piece, bytes):
            writer.write(piece)
            await writer.drain()
        while isinstance(piece, Drip):
            writer.write(piece.byte)
            await asyncio.sleep(0.02)


@asynccontextmanager
async def extender(bounds: Bounds, tls: ContextSource | None) -> AsyncIterator[Target]:
    api = SimulatedApiServer()
    await api.start()
    await api.create("nodes", node_object("a"))
    try:
        async with serving_extender(api, bounds) as served:
            http = served.server
            yield Target(
                await served.server.start("127.0.0.1", 0, tls) if tls else served.port,
                tuple(
                    f"/scheduler/{verb}"
                    for verb in ("predicates", "filter", "prioritize", "preempt", "bind")
                ),
                ("/version", "/healthz", "/readyz", "/metrics", "/", "/ui", "/api/cluster"),
                (
                    "/scheduler/filter",
                    {"Pod": pod_object("p", (30, 4), uid="u"), "NodeNames": ["a"]},
                    '["a"]',
                ),
                lambda: http.open_connections,
                lambda: http.reading,
            )
    finally:
        await api.stop()


@asynccontextmanager
async def webhook(bounds: Bounds, tls: ContextSource | None) -> AsyncIterator[Target]:
    hook = Webhook(AdmissionPolicy(), lambda: {node_kind(80)})
    server = HttpServer(hook.routes(), bounds)
    try:
        yield Target(
            await server.start("127.0.0.1", 0, tls),
            ("/mutate", "/validate"),
            ("/version", "/healthz", "/readyz", "/metrics"),
            ("/validate", review(webhook_pod()), '"allowed": true'),
            lambda: server.open_connections,
            lambda: server.reading,
        )
    finally:
        await server.stop()


Server = Callable[[Bounds, ContextSource | None], Any]
SERVERS: Mapping[str, Server] = {"extender": extender, "webhook": webhook}


@asynccontextmanager
async def attacked(name: str, bounds: Bounds, *, tls: bool = False) -> AsyncIterator[Target]:
    """A server of this name; it lives afterwards."""
    serve: Server = SERVERS[name]
    context = server_context() if tls else None
    async with serve(bounds, (lambda: context) if context else None) as plain:
        target = Target(**{**vars(plain), "tls": client_context() if tls else None})
        yield target
        await target.lives()


def server_context() -> ssl.SSLContext:
    now, day = datetime.now(UTC), timedelta(days=1)
    return issue(make_authority(now, day), ["localhost"], now, day).context()


def client_context() -> ssl.SSLContext:
    """Of who believes anybody: it is not the client that is tested."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context

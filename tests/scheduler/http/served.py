"""A server of the webhook's kind on the loopback, and callers of all sorts."""

import asyncio
import contextlib
import http.client
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

from gpumanager.scheduler.http.server import Bounds, HttpServer, Routes

SECONDS = 120.0
"""After which a test is stuck; a busy machine may need many."""


class Served:
    """A server that runs, and its port."""

    def __init__(self, server: HttpServer, port: int) -> None:
        self.server = server
        self.port = port

    async def post(self, path: str, content: Any, kind: str = "application/json") -> Any:
        """Status and text; content: bytes, or what is sent as JSON."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return await asyncio.to_thread(self._ask, "POST", path, body, {"Content-Type": kind})

    async def get(self, path: str, method: str = "GET") -> Any:
        return await asyncio.to_thread(self._ask, method, path, None, {})

    def _ask(self, method: str, path: str, body: bytes | None, fields: Any) -> tuple[int, bytes]:
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, body, fields)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def say(self, words: bytes) -> bytes:
        """All that is answered to these bytes, until the server ends the connection."""
        reader, writer = await self.open()
        writer.write(words)
        answer = bytearray()
        try:
            async with asyncio.timeout(SECONDS):
                while piece := await reader.read(1 << 16):
                    answer += piece
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
        return bytes(answer)


@contextlib.asynccontextmanager
async def serving(
    routes: Routes,
    bounds: Bounds | None = None,
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> AsyncIterator[Served]:
    server = HttpServer(routes, bounds)
    try:
        yield Served(server, await server.start("127.0.0.1", 0, tls))
    finally:
        await server.stop()

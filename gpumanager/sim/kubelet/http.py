"""The kubelet's `/pods` over HTTP, on a free port of the loopback."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, Final

REQUEST_SECONDS: Final = 30.0
LONGEST_REQUEST: Final = 1 << 16


class PodsServer:
    """Answers GET /pods with what `pods` says at that moment.

    token: who does not bring it is not known; None: anybody is. allowed: whether who is known may
    read pods, which a kubelet asks the API server about. answering: cleared, nobody gets an answer.
    """

    def __init__(self, pods: Callable[[], dict[str, Any]]) -> None:
        self._pods = pods
        self._server: asyncio.Server | None = None
        self.port = 0
        self.requests = 0
        self.token: str | None = None
        self.allowed = True
        self.answering = asyncio.Event()
        self.answering.set()

    async def start(self) -> None:
        """Listen; the port stays the same over a restart."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=LONGEST_REQUEST
        )
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def stop(self) -> None:
        self.answering.set()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request for each connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                await self.answering.wait()
                writer.write(self._answer(request.decode("latin-1")))
                await writer.drain()
        writer.close()

    def _answer(self, request: str) -> bytes:
        line, *headers = request.split("\r\n")
        method, path, *_ = [*line.split(), "", ""]
        if self.token is not None and f"Authorization: Bearer {self.token}" not in headers:
            return _response("401 Unauthorized", b"Unauthorized", "text/plain")
        if not self.allowed:
            return _response("403 Forbidden", b"Forbidden", "text/plain")
        if method == "GET" and path.partition("?")[0].rstrip("/") == "/pods":
            self.requests += 1
            return _response("200 OK", json.dumps(self._pods()).encode(), "application/json")
        return _response("404 Not Found", b"404 page not found\n", "text/plain")


def _response(status: str, body: bytes, kind: str) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body

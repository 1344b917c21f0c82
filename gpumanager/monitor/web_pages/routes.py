"""The agent's pages: which path answers what. Metrics are rendered once for a snapshot."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from aiohttp import web

from gpumanager.gpu.values import Topology
from gpumanager.http_server import RequestHandler
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.metrics.text import CONTENT_TYPE, render
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.monitor.web_pages.display import graph, usage

log = logging.getLogger(__name__)

JSON: Final = "application/json"
NO_STORE: Final = {"Cache-Control": "no-store"}
METHODS: Final = ("GET", "HEAD")


def answer(
    status: int = 200,
    body: bytes | str = "",
    kind: str = "text/plain; charset=utf-8",
    **fields: str,
) -> web.Response:
    """Return a whole answer. body: a sentence gets a line end."""
    whole = f"{body}\n".encode() if isinstance(body, str) else body
    return web.Response(
        status=status, body=whole, headers={"Content-Type": kind, **NO_STORE, **fields}
    )


def not_sampled_yet() -> web.Response:
    return answer(503, "the first sample is not taken yet", **{"Retry-After": "1"})


class Pieces(Protocol):
    """Pieces of an answer, each when there is one; an asynchronous generator is such."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def aclose(self) -> None:
        """Called in any case: there was no more, or nobody is there to take it."""


async def streamed(
    request: web.BaseRequest, pieces: Pieces, kind: str, fields: Mapping[str, str]
) -> web.StreamResponse:
    """Return an answer of unknown length."""
    stream = web.StreamResponse(headers={"Content-Type": kind, **NO_STORE, **fields})
    try:
        await stream.prepare(request)
        if request.method != "HEAD":
            async for piece in pieces:
                await stream.write(piece)
        await stream.write_eof()
    finally:
        await pieces.aclose()
    return stream


def routed(pages: Mapping[str, RequestHandler]) -> RequestHandler:
    """Of a server that is only read: GET and HEAD of `pages`, by their paths."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        page = pages.get(request.path)
        if page is None:
            return answer(404, "there are: " + " ".join(pages))
        if request.method not in METHODS:
            return answer(405, "GET or HEAD", Allow=", ".join(METHODS))
        try:
            return await page(request)
        except ConnectionError:
            raise
        except Exception:
            log.exception("%s %s", request.method, request.path[:100])
            return answer(500, "internal error")

    return handle


class Pages:
    """page: None before the first look. not_ready: why the agent is not; empty when it is.

    trouble: what is wrong with background tasks; empty when nothing is.
    """

    def __init__(
        self,
        page: Callable[[], Awaitable[Page | None]],
        topology: Callable[[], Topology],
        not_ready: Callable[[], str],
        version: str,
        trouble: Callable[[], str] = str,
    ) -> None:
        self._trouble = trouble
        self._page = page
        self._topology = topology
        self._not_ready = not_ready
        self._version = version
        self._rendering = asyncio.Lock()
        self._rendered: tuple[Snapshot, bytes] | None = None

    def handlers(self) -> Mapping[str, RequestHandler]:
        return {
            "/metrics": self.metrics,
            "/metric": self.metrics,
            "/usage": self.usage,
            "/graph": self.graph,
            "/version": self.version,
            "/healthz": self.healthz,
            "/readyz": self.readyz,
        }

    async def metrics(self, _request: web.BaseRequest) -> web.Response:
        async with self._rendering:
            page = await self._page()
            if page is None:
                return not_sampled_yet()
            if self._rendered is None or self._rendered[0] is not page.snapshot:
                self._rendered = (page.snapshot, await asyncio.to_thread(render, page))
            return answer(200, self._rendered[1], CONTENT_TYPE)

    async def usage(self, _request: web.BaseRequest) -> web.Response:
        page = await self._page()
        return not_sampled_yet() if page is None else _json(usage(page.snapshot))

    async def graph(self, _request: web.BaseRequest) -> web.Response:
        page = await self._page()
        return not_sampled_yet() if page is None else _json(graph(self._topology(), page.snapshot))

    async def version(self, _request: web.BaseRequest) -> web.Response:
        return _json({"version": self._version})

    async def healthz(self, _request: web.BaseRequest) -> web.Response:
        """The loop turns, or nobody would say so; and each background task runs."""
        trouble = self._trouble()
        return answer(503, trouble) if trouble else answer(200, "ok")

    async def readyz(self, _request: web.BaseRequest) -> web.Response:
        reason = self._not_ready()
        return answer(503, reason) if reason else answer(200, "ok")


def _json(document: Any) -> web.Response:
    return answer(200, json.dumps(document).encode(), JSON)

"""The agent's pages: which path answers what.

However many read, a snapshot is rendered once: as metrics, and as the document of the node.
"""

import asyncio
import json
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from aiohttp import web

from gpumanager.http_server import RequestHandler
from gpumanager.monitor.display import graph, usage
from gpumanager.monitor.events import Events, news
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.metrics.text import CONTENT_TYPE, render, render_kept
from gpumanager.monitor.node_document import node_document
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.view.page import CAREFUL, web_page
from gpumanager.view.page import KIND as HTML

log = logging.getLogger(__name__)

T = TypeVar("T")

JSON: Final = "application/json"
NO_STORE: Final = {"Cache-Control": "no-store"}
METHODS: Final = ("GET", "HEAD")
READ_SECONDS: Final = 10.0
"""So long after the last question for the node's document its page counts as open."""


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
    """page: with a snapshot that is new enough; None before the first. not_ready: why the agent is
    not; empty when it is. trouble: what is wrong with background tasks; empty when nothing is.

    period: seconds between two snapshots. history: how many seconds of them are kept for pages that
    are opened; 0: a page shows what it has seen itself.
    """

    def __init__(
        self,
        page: Callable[[], Awaitable[Page | None]],
        events: Events,
        not_ready: Callable[[], str],
        version: str,
        trouble: Callable[[], str] = str,
        *,
        period: float = 1.0,
        history: float = 0.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trouble = trouble
        self._page = page
        self._events = events
        self._not_ready = not_ready
        self._version = version
        self._period = period
        self._clock = clock
        self._rendering = asyncio.Lock()
        self._rendered: dict[str, tuple[object, bytes]] = {}
        self._before: Snapshot | None = None
        self._at = 0.0
        self._read_at = -math.inf
        self._history = deque[dict[str, Any]](maxlen=round(history / period))

    def handlers(self) -> Mapping[str, RequestHandler]:
        return {
            "/": self.home,
            "/ui": self.home,
            "/api/node": self.node,
            "/api/history": self.history,
            "/metrics": self.metrics,
            "/metric": self.kept_metrics,
            "/usage": self.usage,
            "/graph": self.graph,
            "/version": self.version,
            "/healthz": self.healthz,
            "/readyz": self.readyz,
        }

    @property
    def is_read(self) -> bool:
        """Return whether somebody has the node's page open, or keeps its history."""
        recent = time.monotonic() - self._read_at <= max(READ_SECONDS, 3 * self._period)
        return recent or self._history.maxlen != 0

    def saw(self, page: Page) -> None:
        """Take the newest snapshot: find what happened since the last, and keep it as history."""
        if self._before is not None:
            for event in news(self._before, page.snapshot):
                self._events.add(event)
        self._before, self._at = page.snapshot, self._clock()
        if self._history.maxlen:
            self._history.append(past_of(self._document(page)))

    async def home(self, _request: web.BaseRequest) -> web.Response:
        page = web_page("node")
        return answer(200, page.body, HTML, **page.fields)

    async def node(self, _request: web.BaseRequest) -> web.Response:
        self._read_at = time.monotonic()
        return await self._once("/api/node", self._document, _encoded, JSON, **CAREFUL)

    async def history(self, _request: web.BaseRequest) -> web.Response:
        body = await asyncio.to_thread(_encoded, list(self._history))
        return answer(200, body, JSON, **CAREFUL)

    async def metrics(self, _request: web.BaseRequest) -> web.Response:
        return await self._once("/metrics", lambda page: page, render, CONTENT_TYPE)

    async def kept_metrics(self, _request: web.BaseRequest) -> web.Response:
        return await self._once("/metric", lambda page: page, render_kept, CONTENT_TYPE)

    async def usage(self, _request: web.BaseRequest) -> web.Response:
        page = await self._page()
        return not_sampled_yet() if page is None else _json(usage(page.snapshot))

    async def graph(self, _request: web.BaseRequest) -> web.Response:
        page = await self._page()
        return not_sampled_yet() if page is None else _json(graph(page.snapshot))

    async def version(self, _request: web.BaseRequest) -> web.Response:
        return _json({"version": self._version})

    async def healthz(self, _request: web.BaseRequest) -> web.Response:
        """The loop turns, or nobody would say so; and each background task runs."""
        trouble = self._trouble()
        return answer(503, trouble) if trouble else answer(200, "ok")

    async def readyz(self, _request: web.BaseRequest) -> web.Response:
        reason = self._not_ready()
        return answer(503, reason) if reason else answer(200, "ok")

    def _document(self, page: Page) -> dict[str, Any]:
        return node_document(
            page,
            tuple(self._events.newest()),
            time=self._at,
            not_ready=self._not_ready(),
            period=self._period,
        )

    async def _once(
        self,
        path: str,
        read: Callable[[Page], T],
        encode: Callable[[T], bytes],
        kind: str,
        **fields: str,
    ) -> web.Response:
        """Answer with a text that is made once for a snapshot and the events since.

        read: in the loop, which owns what it reads; encode: in a thread.
        """
        async with self._rendering:
            page = await self._page()
            if page is None:
                return not_sampled_yet()
            state = (page.snapshot.at, self._events.added, self._not_ready())
            made, body = self._rendered.get(path, (None, b""))
            if made != state:
                body = await asyncio.to_thread(encode, read(page))
                self._rendered[path] = (state, body)
            return answer(200, body, kind, **fields)


def past_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page draws of an earlier snapshot, by the same names."""
    device = ("uuid", "whole", "share_percent", "utilization_percent", "throttled_seconds")
    names = ("namespace", "pod", "container", "state")
    return {
        "time": document["time"],
        "containers": [
            {
                **{key: one[key] for key in names},
                "gpus": [{key: own[key] for key in device} for own in one["gpus"]],
            }
            for one in document["containers"]
        ],
    }


def _encoded(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _json(document: Any) -> web.Response:
    return answer(200, json.dumps(document).encode(), JSON)

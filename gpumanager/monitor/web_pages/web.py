"""The agent's web page, and what it is made of: one document, its minutes of history, a stream.

However many look, there is one look at the node: what was seen is told to all of them. The history
is never in memory as text: it is written row by row, as fast as it is taken.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from gpumanager.http_server import RequestHandler
from gpumanager.monitor.metrics.rows import Page
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.monitor.web_pages.document import document
from gpumanager.monitor.web_pages.events import Event, Events, news
from gpumanager.monitor.web_pages.history import ShareHistory
from gpumanager.monitor.web_pages.routes import JSON, answer, not_sampled_yet, streamed
from gpumanager.monitor.web_pages.stream import KIND, Stream, TooManySubscribers
from gpumanager.web.page import CAREFUL, web_page
from gpumanager.web.page import KIND as HTML


async def nothing() -> None:
    """Do nothing: each look is new enough."""


class Web:
    """Tell it each look with `saw`. page: None before the first one. period: between two looks.

    refresh: awaited before somebody is told the first time; it may call `saw`.
    """

    def __init__(
        self,
        page: Callable[[], Page | None],
        not_ready: Callable[[], str],
        period: float = 1.0,
        *,
        clock: Callable[[], float] = time.time,
        refresh: Callable[[], Awaitable[None]] = nothing,
    ) -> None:
        self.events = Events()
        self.history = ShareHistory()
        self.stream = Stream(self._newest)
        self._page = page
        self._not_ready = not_ready
        self._period = period
        self._clock = clock
        self._refresh = refresh
        self._before: tuple[Snapshot, float] | None = None
        """The last look, and when it was."""

    def handlers(self) -> Mapping[str, RequestHandler]:
        return {
            "/": self.home,
            "/ui": self.home,
            "/api/node": self.node,
            "/api/stream": self.listen,
        }

    def saw(self, snapshot: Snapshot) -> None:
        """Take a snapshot: this is how it is now."""
        now = self._clock()
        if self._before is not None:
            for event in news(self._before[0], snapshot):
                self.events.add(event, now)
        self._before = (snapshot, now)
        self.history.note(snapshot)
        self.stream.tell()

    def happened(self, event: Event) -> None:
        """Add an event that no snapshot shows."""
        self.events.add(event, self._clock())

    async def home(self, _request: web.BaseRequest) -> web.Response:
        page = web_page("node")
        return answer(200, page.body, HTML, **page.fields)

    async def node(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._refresh()
        node = self._document()
        if node is None:
            return not_sampled_yet()
        return await streamed(request, _written(node, self.history), JSON, CAREFUL)

    async def listen(self, request: web.BaseRequest) -> web.StreamResponse:
        await self._refresh()
        try:
            listener = self.stream.listen()
        except TooManySubscribers:
            return answer(503, "as many listen as may: ask /api/node", **{"Retry-After": "5"})
        return await streamed(request, listener, KIND, CAREFUL)

    def _newest(self) -> bytes:
        node = self._document()
        return b"" if node is None else _encoded(node)

    def _document(self) -> dict[str, Any] | None:
        page = self._page()
        if page is None or self._before is None:
            return None
        return document(
            page,
            self.events.newest(),
            self.history.throttled,
            time=self._before[1],
            not_ready=self._not_ready(),
            period=self._period,
        )


async def _written(node: Mapping[str, Any], history: ShareHistory) -> AsyncGenerator[bytes, None]:
    """Yield the node's document, its history last. Other tasks run between two series."""
    yield _encoded(node)[:-1] + b',"history":{"seconds_ago":' + _encoded(history.ages())
    yield b',"series":['
    comma = b""
    for series in history.series():
        namespace, pod, name = series.container or (None, None, None)
        head = {"gpu": series.gpu.uuid, "namespace": namespace, "pod": pod, "container": name}
        samples = f',"percent":[{series.percent}],"memory_mib":[{series.memory_mib}]}}'
        yield comma + _encoded(head)[:-1] + samples.encode()
        comma = b","
        await asyncio.sleep(0)
    yield b"]}}"


def _encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

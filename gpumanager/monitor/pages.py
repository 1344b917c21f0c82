"""The pages: which path tells what. Each is made once for a snapshot, however many ask."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from gpumanager.gpu.values import Topology
from gpumanager.monitor.display import graph, usage
from gpumanager.monitor.http import Answer, Plain
from gpumanager.monitor.rows import Page
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.monitor.text import CONTENT_TYPE, render

JSON: Final = "application/json"
NOT_YET: Final = Answer.say(503, "the first look is not over yet")


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
        self._rendered: tuple[Snapshot, Answer] | None = None

    def handlers(self) -> Mapping[str, Plain]:
        return {
            "/metrics": self.metrics,
            "/metric": self.metrics,
            "/usage": self.usage,
            "/graph": self.graph,
            "/version": self.version,
            "/healthz": self.healthz,
            "/readyz": self.readyz,
        }

    async def metrics(self) -> Answer:
        async with self._rendering:
            page = await self._page()
            if page is None:
                return NOT_YET
            if self._rendered is None or self._rendered[0] is not page.snapshot:
                text = await asyncio.to_thread(render, page)
                self._rendered = (page.snapshot, Answer(body=text, kind=CONTENT_TYPE))
            return self._rendered[1]

    async def usage(self) -> Answer:
        page = await self._page()
        return NOT_YET if page is None else _json(usage(page.snapshot))

    async def graph(self) -> Answer:
        page = await self._page()
        return NOT_YET if page is None else _json(graph(self._topology(), page.snapshot))

    async def version(self) -> Answer:
        return _json({"version": self._version})

    async def healthz(self) -> Answer:
        """The loop turns, or nobody would say so; and each background task runs."""
        trouble = self._trouble()
        return Answer.say(503, trouble) if trouble else Answer.say(200, "ok")

    async def readyz(self) -> Answer:
        reason = self._not_ready()
        return Answer.say(503, reason) if reason else Answer.say(200, "ok")


def _json(document: Any) -> Answer:
    return Answer(body=json.dumps(document).encode(), kind=JSON)

"""The cluster's web page and its document, for the extender's server.

Only what has been read and decided anyway is shown, and nothing can be changed here. Whoever may
ask `/explain` may ask this: the door is the server's. Work on ten thousand nodes is done in small
pieces, between which kube-scheduler is answered.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiohttp import web

from gpumanager.kubelet.pods import PodUID
from gpumanager.scheduler.http.server import JSON, LATER, Page, Refused
from gpumanager.scheduler.overview import SORTS, Overview, Wanted, find
from gpumanager.scheduler.overview_document import (
    POD_SECONDS,
    SCHEMA,
    pods_waiting,
    quotas,
    some_nodes,
    sums,
    waiting,
)
from gpumanager.scheduler.quota_rules import QuotaRules
from gpumanager.scheduler.service import Extender
from gpumanager.web.page import CAREFUL, KIND, web_page

BREATH: Final = 20
"""Nodes looked at before others in the loop get their turn: a millisecond's work."""
MOST_LINES: Final = 100
MOST_PAGES: Final = 10_000
LONGEST_SEARCH: Final = 253


class OverviewPages:
    """Of one extender. version: what the page says of itself. now: seconds since the epoch."""

    def __init__(
        self, extender: Extender, version: str, *, now: Callable[[], float] = time.time
    ) -> None:
        self._extender = extender
        self._version = version
        self._now = now
        self._overview = Overview(self._name)
        self._looking = asyncio.Lock()

    def pages(self) -> Mapping[str, Page]:
        return {"/": self.home, "/ui": self.home, "/api/cluster": self.cluster}

    async def home(self, _request: web.BaseRequest, _body: bytes) -> web.Response:
        page = web_page("cluster")
        head = {"Content-Type": KIND, "Cache-Control": "no-store", **page.fields}
        return web.Response(body=page.body, headers=head)

    async def cluster(self, request: web.BaseRequest, _body: bytes) -> web.Response:
        wanted = read_wanted(request.query)
        if missing := self._extender.missing:
            raise Refused(503, f"the cluster's {missing} are still being read", **LATER)
        async with self._looking:
            await self._follow()
            found = self._document(wanted)
        body = json.dumps(found, separators=(",", ":")).encode()
        head = {"Content-Type": JSON, "Cache-Control": "no-store", **CAREFUL}
        return web.Response(body=body, headers=head)

    async def _follow(self) -> None:
        """Every node as it is now. Those that have not changed are the same value."""
        state, overview = self._extender.state, self._overview
        for name in overview.lines.keys() - state.nodes.keys():
            overview.put(name, None)
        done = 0
        for name, node in tuple(state.nodes.items()):
            line = overview.lines.get(name)
            if line is None or line.node is not node:
                overview.put(name, node)
                done += 1
            if done % BREATH == BREATH - 1:
                done += 1
                await asyncio.sleep(0)

    def _document(self, wanted: Wanted) -> dict[str, Any]:
        extender, now = self._extender, self._now()
        word = wanted.search.strip().lower()
        waits = waiting(extender.memory, self._waits, word, now - POD_SECONDS)
        rules = extender.rules
        return {
            "schema": SCHEMA,
            "time": round(now, 3),
            "version": self._version,
            "leads": extender.election.leads,
            "leader": extender.election.holder,
            **sums(self._overview),
            "search": wanted.search,
            "sort": wanted.sort,
            "per_page": wanted.per_page,
            **some_nodes(find(self._overview.in_order(), wanted), self._name),
            "waiting": pods_waiting(waits),
            "quota": quotas(rules.known, rules.usage) if isinstance(rules, QuotaRules) else None,
        }

    def _name(self, uid: PodUID) -> str:
        bound = self._extender.state.bound(uid)
        return f"{bound.pod.namespace}/{bound.pod.name}" if bound else ""

    def _waits(self, uid: PodUID) -> bool:
        state = self._extender.state
        return state.knows(uid) and state.bound_to(uid) is None


def read_wanted(query: Mapping[str, str]) -> Wanted:
    """Raises Refused."""
    if strange := sorted(query.keys() - {"search", "sort", "page", "per_page"}):
        known = "search, sort, page and per_page"
        raise Refused(400, f"{strange[0][:LONGEST_SEARCH]!r} is not known; there are {known}")
    search, sort = query.get("search", ""), query.get("sort", "name")
    if len(search) > LONGEST_SEARCH:
        raise Refused(400, f"search: {len(search)} letters; the most is {LONGEST_SEARCH}")
    if sort not in SORTS:
        raise Refused(400, f"sort: write one of {', '.join(SORTS)}")
    page, lines = _count(query, "page", 1, MOST_PAGES), _count(query, "per_page", 25, MOST_LINES)
    return Wanted(search, sort, page, lines)


def _count(query: Mapping[str, str], name: str, usual: int, most: int) -> int:
    text = query.get(name, str(usual))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        raise Refused(400, f"{name}: write a number from 1 to {most}")
    if not 1 <= int(text) <= most:
        raise Refused(400, f"{name}: write a number from 1 to {most}")
    return int(text)

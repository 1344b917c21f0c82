"""The cluster's web page and its document, for the extender's server.

Read-only: it shows only what the extender has read and decided anyway. The same callers may read it
as `/explain`. Work on ten thousand nodes is done in small pieces, with kube-scheduler's requests in
between.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import msgspec
from aiohttp import web

from gpumanager.ids import PodUID
from gpumanager.scheduler.cluster_document import (
    POD_SECONDS,
    SCHEMA,
    SORTS,
    STATES,
    NodeLine,
    Wanted,
    quotas,
    refresh,
    survey,
    waiting,
    written,
)
from gpumanager.scheduler.cooperative import Work, run_cooperatively
from gpumanager.scheduler.extender.service import Extender
from gpumanager.scheduler.http.server import JSON, LATER, HttpRefusal, Page
from gpumanager.scheduler.quota.rules import NO_QUOTAS
from gpumanager.view.page import CAREFUL, KIND, web_page


class OverviewPages:
    """Of one extender. version: what the page says of itself. now: seconds since the epoch."""

    def __init__(
        self, extender: Extender, version: str, *, now: Callable[[], float] = time.time
    ) -> None:
        self._extender = extender
        self._version = version
        self._now = now
        self._lines: dict[str, NodeLine] = {}
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
            raise HttpRefusal(503, f"the cluster's {missing} are still being read", **LATER)
        async with self._looking:
            body = await run_cooperatively(self._document(wanted))
        head = {"Content-Type": JSON, "Cache-Control": "no-store", **CAREFUL}
        return web.Response(body=body, headers=head)

    def _document(self, wanted: Wanted) -> Work[bytes]:
        extender, now = self._extender, self._now()
        yield from refresh(self._lines, dict(extender.state.nodes))
        rules, word = extender.rules, wanted.word
        known = rules.known()
        waits = yield from waiting(extender.memory, self._waits, word, now - POD_SECONDS)
        found, lines = yield from survey(tuple(self._lines.values()), wanted)
        fields = {
            **found,
            "schema": SCHEMA,
            "time": round(now, 3),
            "version": self._version,
            "leads": extender.election.leads,
            "leader": extender.election.holder,
            "search": wanted.search,
            "state": wanted.state,
            "sort": wanted.sort,
            "per_page": wanted.per_page,
            "waiting": waits,
            "quota": (
                None if known is NO_QUOTAS else (yield from quotas(known, rules.usage, word))
            ),
        }
        return (yield from written(fields, lines, word))

    def _waits(self, uid: PodUID) -> bool:
        state = self._extender.state
        return uid in state.known and uid not in state.bound


def read_wanted(query: Mapping[str, str]) -> Wanted:
    """Read the parameters of a request, the first of each; raises HttpRefusal."""
    try:
        return msgspec.convert({name: query[name] for name in query}, Wanted, strict=False)
    except msgspec.ValidationError as error:
        known = f"state ({', '.join(STATES)}), sort ({', '.join(SORTS)})"
        advice = f"there are search, {known}, page and per_page"
        raise HttpRefusal(400, f"{str(error)[:200]}; {advice}") from error

"""The cluster's web page and its document, for the extender's server.

Read-only: it shows only what the extender has read and decided anyway. The same callers may read it
as `/explain`. Work on ten thousand nodes is done in small pieces, with kube-scheduler's requests in
between.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aiohttp import web

from gpumanager.ids import PodUID
from gpumanager.scheduler.cluster_document import (
    POD_SECONDS,
    PORTION,
    SCHEMA,
    SORTS,
    STATES,
    Overview,
    Wanted,
    find,
    quotas,
    sums,
    waiting,
    written,
)
from gpumanager.scheduler.cooperative import Work, batches, run_cooperatively
from gpumanager.scheduler.extender.service import Extender
from gpumanager.scheduler.http.server import JSON, LATER, HttpRefusal, Page
from gpumanager.scheduler.quota.rules import QuotaRules
from gpumanager.view.page import CAREFUL, KIND, web_page

LOOKED_AT_ONCE: Final = 10
"""Nodes that have changed: half a millisecond, or twice that where hundreds of pods are on each."""
FEW_CHANGES: Final = 4096
"""Changes, up to which they are gone through one by one, and not all nodes."""
MOST_LINES: Final = 100
MOST_PAGES: Final = 10_000
LONGEST_SEARCH: Final = 253
FIELDS: Final = ("search", "state", "sort", "page", "per_page")


class OverviewPages:
    """Of one extender. version: what the page says of itself. now: seconds since the epoch."""

    def __init__(
        self, extender: Extender, version: str, *, now: Callable[[], float] = time.time
    ) -> None:
        self._extender = extender
        self._version = version
        self._now = now
        self._overview = Overview()
        self._seen = 0
        """So many changes have been looked at."""
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

    def _follow(self) -> Work[None]:
        """Read the nodes that have changed until now. A request that is cancelled meanwhile leaves
        the rest to the next one."""
        state, overview = self._extender.state, self._overview
        seen, nodes = state.changes, dict(state.nodes)
        since = state.since(self._seen) if seen - self._seen <= FEW_CHANGES else None
        names = tuple(nodes.keys() | overview.lines if since is None else set(since))
        changed: list[str] = []
        for portion in batches(names, PORTION):
            changed += [one for one in portion if not overview.tells(one, nodes.get(one))]
            yield
        for few in batches(changed, LOOKED_AT_ONCE):
            for name in few:
                overview.put(name, nodes.get(name))
            yield
        self._seen = seen

    def _document(self, wanted: Wanted) -> Work[bytes]:
        yield from self._follow()
        extender, now = self._extender, self._now()
        rules, word = extender.rules, wanted.word
        known = rules if isinstance(rules, QuotaRules) else None
        waits = yield from waiting(extender.memory, self._waits, word, now - POD_SECONDS)
        lines, place = yield from find(self._overview, wanted)
        fields = {
            **sums(self._overview),
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
            "quota": (yield from quotas(known.known, known.usage, word)) if known else None,
            **place,
        }
        return (yield from written(fields, lines, word))

    def _waits(self, uid: PodUID) -> bool:
        state = self._extender.state
        return uid in state.known and uid not in state.bound


def read_wanted(query: Mapping[str, str]) -> Wanted:
    """Read the parameters of a request; raises HttpRefusal."""
    if strange := sorted(query.keys() - set(FIELDS)):
        known = f"{', '.join(FIELDS[:-1])} and {FIELDS[-1]}"
        raise HttpRefusal(400, f"{strange[0][:LONGEST_SEARCH]!r} is not known; there are {known}")
    search = query.get("search", "")
    if len(search) > LONGEST_SEARCH:
        raise HttpRefusal(400, f"search: {len(search)} letters; the most is {LONGEST_SEARCH}")
    state, sort = _word(query, "state", tuple(STATES)), _word(query, "sort", SORTS)
    page, lines = _count(query, "page", 1, MOST_PAGES), _count(query, "per_page", 25, MOST_LINES)
    return Wanted(search, state, sort, page, lines)


def _word(query: Mapping[str, str], name: str, words: Sequence[str]) -> str:
    """Return the parameter, by default the first word; raises HttpRefusal."""
    word = query.get(name, words[0])
    if word not in words:
        raise HttpRefusal(400, f"{name}: write one of {', '.join(words)}")
    return word


def _count(query: Mapping[str, str], name: str, usual: int, most: int) -> int:
    text = query.get(name, str(usual))
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not digits or not 1 <= int(text) <= most:
        raise HttpRefusal(400, f"{name}: write a number from 1 to {most}")
    return int(text)

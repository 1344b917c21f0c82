"""Keeps a mirror of this node's pods: one list, then one watch, for as long as the agent lives.

The list comes from the API server's cache (`resourceVersion=0`), which knows the pods of a node
without reading all pods of the cluster. The watch goes on where the last one ended; only where the
server has forgotten that place (410) is everything listed again. Bookmarks keep the place fresh
while nothing happens.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final

from gpumanager.cluster.api import NOT_UNDERSTOOD, ApiRefused, ApiServer, ApiUnavailable
from gpumanager.cluster.backoff import Backoff
from gpumanager.cluster.pods import ClusterPod, NotAPod, PodStore, cluster_pod

log = logging.getLogger(__name__)

PODS: Final = "/api/v1/pods"
PAGE: Final = 500
WATCH_SECONDS: Final = (300.0, 600.0)
GONE: Final = 410
CACHED: Final = "0"
"""Any version the server has at hand."""
NEWEST: Final = ""
BRIEF_SECONDS: Final = 1.0
"""A watch that ends so soon has failed, whatever it says."""


class PodWatch:
    """The pods of one node, in `store`.

    changed: called after each change.
    """

    def __init__(
        self,
        api: ApiServer,
        node: str,
        *,
        changed: Callable[[], None] = lambda: None,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = PodStore()
        self.lists = self.refusals = 0
        self._api = api
        self._field = f"spec.nodeName={node}"
        self._changed = changed
        self._backoff = self._fresh = backoff or Backoff()
        self._clock = clock
        self._version: str | None = None
        self._from = CACHED
        self._said = ""

    async def run(self) -> None:
        """For as long as the task lives."""
        while True:
            began = self._clock()
            well = await self._follow()
            well = well and self._clock() - began >= BRIEF_SECONDS
            self._backoff = self._fresh if well else self._backoff.failed()
            await asyncio.sleep(self._backoff.pause(random.random()))  # noqa: S311

    async def _follow(self) -> bool:
        """List if need be, then watch to the end of the watch; whether that was its proper end."""
        try:
            if self._version is None:
                await self._list()
            await self._watch()
        except (ApiRefused, ApiUnavailable, *NOT_UNDERSTOOD) as error:
            return self._failed(error)
        return True

    def _failed(self, error: Exception) -> bool:
        """Each kind of trouble is said once; that a place is forgotten is none."""
        self.refusals += 1
        if isinstance(error, ApiRefused) and error.status == GONE:
            self._version, self._from = None, NEWEST
            return False
        kind = type(error).__name__
        log.log(
            logging.DEBUG if self._said == kind else logging.WARNING, "watching pods: %s", error
        )
        self._said = kind
        return False

    def _worked(self) -> None:
        if self._said:
            log.info("the API server answers again: the pods of this node are watched")
        self._said = ""

    async def _list(self) -> None:
        found: list[ClusterPod] = []
        query: dict[str, object] = {"resourceVersion": self._from} if self._from else {}

        def take(item: Any) -> None:
            found.extend(_readable(item))

        while True:
            asked = {"fieldSelector": self._field, "limit": PAGE, **query}
            metadata = await self._api.list(PODS, take, **asked)
            if not metadata.get("continue"):
                break
            query = {"continue": metadata["continue"]}
        self.lists += 1
        self.store.replace(found)
        self._version, self._from = str(metadata.get("resourceVersion", "")), CACHED
        self._changed()

    async def _watch(self) -> None:
        seconds = random.uniform(*WATCH_SECONDS)  # noqa: S311
        place = {"allowWatchBookmarks": "true", "resourceVersion": self._version}
        stream = self._api.watch(PODS, seconds, fieldSelector=self._field, **place)
        async with stream as events:
            self._worked()
            async for event in events:
                self._take(event)

    def _take(self, event: Any) -> None:
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise _error(item)
        version = (item.get("metadata") or {}).get("resourceVersion")
        if version:
            self._version = version
        for pod in _readable(item) if kind != "BOOKMARK" else ():
            (self.store.remove if kind == "DELETED" else self.store.put)(pod)
            self._changed()


def _error(status: Any) -> ApiRefused:
    """An error in a watch comes as an object, behind a status of 200."""
    gone = status.get("reason") in {"Expired", "Gone"}
    code = GONE if gone else int(status.get("code") or 0)
    return ApiRefused(f"watch {PODS}", code, status.get("reason", ""), status.get("message", ""))


def _readable(item: Any) -> tuple[ClusterPod, ...]:
    """The pod; nothing where it is none, which is said."""
    try:
        return (cluster_pod(item),)
    except NotAPod as error:
        log.warning("an object among the pods is left out: %s", error)
        return ()

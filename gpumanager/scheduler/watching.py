"""Keeps the state true: nodes and pods of the whole cluster, listed once and then watched.

Each kind is followed by itself. A list comes in pages and item by item, of which only what the
extender needs is kept; a watch goes on where the last one ended, bookmarks keep that place fresh,
and where the server has forgotten it (410), everything is listed again.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from gpumanager.cluster.api import NOT_UNDERSTOOD, ApiRefused, ApiServer, ApiUnavailable
from gpumanager.cluster.backoff import Backoff
from gpumanager.kubelet.pods import PodUID
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.scoring.host_resources import read_pod
from gpumanager.scheduler.state import ClusterState
from gpumanager.supervisor import SkippedErrors

log = logging.getLogger(__name__)

PAGE: Final = 500
WATCH_SECONDS: Final = (300.0, 600.0)
GONE: Final = 410
BRIEF_SECONDS: Final = 1.0
"""A watch that ends so soon has failed, whatever it says."""


class Kind(Protocol):
    """What is done with objects of one kind. One that raises is skipped, and said once."""

    @property
    def path(self) -> str: ...
    def name(self, item: Any) -> str:
        """What tells it from others."""
        ...

    def put(self, item: Any) -> None:
        """It is so now."""
        ...

    def remove(self, item: Any) -> None: ...
    def only(self, names: set[str]) -> None:
        """Everything there is has been put, and was these."""
        ...


class Nodes:
    """Nodes, by what their agents publish."""

    path = "/api/v1/nodes"

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def name(self, item: Any) -> str:
        return str(item["metadata"]["name"])

    def put(self, item: Any) -> None:
        self._state.node(read_node(item))

    def remove(self, item: Any) -> None:
        self._state.node_gone(str(item["metadata"]["name"]))

    def only(self, names: set[str]) -> None:
        self._state.only_nodes(names)


class Pods:
    """Pods: of those with GPUs all that matters, of others what they take of their node.

    A pod's owner may write its annotations at any time, so they never decide whether it counts: one
    whose annotations are not understood counts with what its spec asks for (decision 0097).
    """

    path = "/api/v1/pods"

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def name(self, item: Any) -> str:
        return str(item["metadata"]["uid"])

    def put(self, item: Any) -> None:
        pod = read_pod(item)
        node = str((item.get("spec") or {}).get("nodeName") or "")
        try:
            self._state.pod(pod, node)
        except Exception:
            self._state.pod(replace(pod, annotations={}), node)
            raise  # to be said, and counted

    def remove(self, item: Any) -> None:
        self._state.pod_gone(PodUID(item["metadata"]["uid"]))

    def only(self, names: set[str]) -> None:
        self._state.only_pods(PodUID(name) for name in names)


class Follower:
    """Follows one kind of object. heard: when the server last told us anything, by `clock`.

    fields: a selector, `metadata.name=n`; empty for all there are.
    """

    def __init__(
        self,
        api: ApiServer,
        kind: Kind,
        *,
        fields: str = "",
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        skipped: SkippedErrors | None = None,
    ) -> None:
        self.skipped = skipped or SkippedErrors()
        self.listed = asyncio.Event()
        """Everything there was has been read once."""
        self.sure = asyncio.Event()
        """And since it was last said to be doubtful."""
        self.heard = float("-inf")
        self.lists = self.failures = 0
        self._api = api
        self._kind = kind
        self._fields = {"fieldSelector": fields} if fields else {}
        self._backoff = self._fresh = backoff or Backoff(0.5, 30.0)
        self._clock = clock
        self._version: str | None = None
        self._again = asyncio.Event()
        self._said = ""

    @property
    def current(self) -> bool:
        """Everything has been read, and nothing has kept us from following it since."""
        return self.listed.is_set() and not self._said

    def anew(self) -> None:
        """What is known may be old, though not by much: list everything, now."""
        self.sure.clear()
        self._again.set()

    async def run(self) -> None:
        """For as long as the task lives."""
        while True:
            began = self._clock()
            well = await self._follow()
            if self._again.is_set():
                continue
            well = well and self._clock() - began >= BRIEF_SECONDS
            self._backoff = self._fresh if well else self._backoff.failed()
            await asyncio.sleep(self._backoff.pause(random.random()))  # noqa: S311

    async def _follow(self) -> bool:
        """List if need be, then watch until the watch ends; whether that was its proper end."""
        if self._again.is_set():
            self._again.clear()
            self._version = None
        try:
            if self._version is None:
                await self._list()
            await self._watch_until_again()
        except (ApiRefused, ApiUnavailable, *NOT_UNDERSTOOD) as error:
            return self._failed(error)
        return True

    async def _watch_until_again(self) -> None:
        watching = asyncio.create_task(self._watch())
        told = asyncio.create_task(self._again.wait())
        try:
            await asyncio.wait((watching, told), return_when=asyncio.FIRST_COMPLETED)
            if watching.done():
                watching.result()
        finally:
            watching.cancel()
            told.cancel()
            await asyncio.gather(watching, told, return_exceptions=True)

    def _failed(self, error: Exception) -> bool:
        """Each kind of trouble is said once; that a place is forgotten is none."""
        self.failures += 1
        if isinstance(error, ApiRefused) and error.status == GONE:
            self._version = None
            return False
        kind = type(error).__name__
        level = logging.DEBUG if self._said == kind else logging.WARNING
        log.log(level, "following %s: %s", self._kind.path, error)
        self._said = kind
        return False

    async def _list(self) -> None:
        names: set[str] = set()
        query: dict[str, object] = {**self._fields}

        def take(item: Any) -> None:
            if (name := self._put(item)) is not None:
                names.add(name)

        while True:
            metadata = await self._api.list(self._kind.path, take, limit=PAGE, **query)
            self.heard = self._clock()
            if not metadata.get("continue"):
                break
            query["continue"] = metadata["continue"]
        self._kind.only(names)
        self._version = str(metadata.get("resourceVersion", ""))
        self.lists += 1
        self.listed.set()
        self.sure.set()

    async def _watch(self) -> None:
        seconds = random.uniform(*WATCH_SECONDS)  # noqa: S311
        place = {"allowWatchBookmarks": "true", "resourceVersion": self._version, **self._fields}
        async with self._api.watch(self._kind.path, seconds, **place) as events:
            if self._said:
                log.info("the API server answers again: %s are watched", self._kind.path)
            self._said, self.heard = "", self._clock()
            async for event in events:
                self._take(event)
                self.heard = self._clock()

    def _take(self, event: Any) -> None:
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise _error(self._kind.path, item)
        version = (item.get("metadata") or {}).get("resourceVersion")
        if version:
            self._version = version
        if kind == "DELETED":
            self._kind.remove(item)
        elif kind != "BOOKMARK":
            self._put(item)

    def _put(self, item: Any) -> str | None:
        """Its name, also where it is not understood: what is known of it stands then."""
        try:
            name = self._kind.name(item)
        except NOT_UNDERSTOOD as error:
            self.skipped.skip(self._kind.path, "an object without a name", error)
            return None
        try:
            self._kind.put(item)
        except Exception as error:  # noqa: BLE001 - of one object; the others go on
            self.skipped.skip(self._kind.path, name, error)
        return name


def _error(path: str, status: Any) -> ApiRefused:
    """An error in a watch comes as an object, behind a status of 200."""
    gone = status.get("reason") in {"Expired", "Gone"}
    code = GONE if gone else int(status.get("code") or 0)
    return ApiRefused(f"watch {path}", code, status.get("reason", ""), status.get("message", ""))

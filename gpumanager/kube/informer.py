"""An informer: keeps a store up to date with all objects of one kind, by list and watch.

A list is read in pages, item by item; the store keeps what it needs. Each watch resumes at the
resource version where the last one ended. Bookmarks renew that version while nothing changes; if
the server has compacted it (410 Gone), everything is listed again. Errors are retried with backoff
and logged once per outage.

The `kubernetes` package has a watch of its own; decision 0126 says what that lacks.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Generic, Protocol, TypeVar

from gpumanager.kube.backoff import Backoff
from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable
from gpumanager.supervisor import SkippedErrors

log = logging.getLogger(__name__)

T = TypeVar("T")

WATCH_SECONDS: Final = (300.0, 600.0)
BRIEF_SECONDS: Final = 1.0
"""A watch that ends sooner counts as failed, so that the informer backs off."""


class Store(Protocol):
    """Keeps the objects of one kind. An object for which `put` raises is skipped."""

    @property
    def path(self) -> str:
        """The API path of all objects of the kind."""
        ...

    def name(self, item: Any) -> str:
        """Return the key of an object."""
        ...

    def put(self, item: Any) -> None:
        """Keep an object that was added or has changed."""
        ...

    def remove(self, item: Any) -> None:
        """Drop an object that was deleted."""
        ...

    def only(self, names: set[str]) -> None:
        """Drop all other objects: a list is complete, and all its items have been put."""
        ...


def full_name(item: Any) -> str:
    """Return an object's namespace/name."""
    metadata = item["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


@dataclass(frozen=True, slots=True)
class ObjectStore(Generic[T]):
    """What `read` returns of each object of one kind, by `key`; nothing for None. changed: gets the
    key, and what was known before and is after a change."""

    path: str
    read: Callable[[Any], T | None]
    changed: Callable[[str, T | None, T | None], None] = lambda _name, _before, _after: None
    known: dict[str, T] = field(default_factory=dict)
    key: Callable[[Any], str] = full_name

    def name(self, item: Any) -> str:
        return self.key(item)

    def put(self, item: Any) -> None:
        self._become(self.name(item), self.read(item))

    def remove(self, item: Any) -> None:
        self._become(self.name(item), None)

    def only(self, names: set[str]) -> None:
        for name in self.known.keys() - names:
            self._become(name, None)

    def _become(self, name: str, after: T | None) -> None:
        before = self.known.pop(name, None)
        if after is not None:
            self.known[name] = after
        self.changed(name, before, after)


class Informer:
    """Lists and watches one kind of object. heard: when the server last sent anything, by `clock`.

    fields, labels: selectors, `metadata.name=n`; empty for all there are. cached: the list may come
    from the API server's cache, which knows the pods of a node without reading those of all others,
    and may be a little old; otherwise it is the newest.
    """

    def __init__(
        self,
        api: KubeClient,
        store: Store,
        *,
        fields: str = "",
        labels: str = "",
        cached: bool = False,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        skipped: SkippedErrors | None = None,
    ) -> None:
        self.skipped = skipped or SkippedErrors()
        self.listed = asyncio.Event()
        """Set once the first list is complete."""
        self.synced = asyncio.Event()
        """Set once a list is complete since the last `resync`."""
        self.heard = float("-inf")
        self.lists = self.failures = 0
        self.version: str | None = None
        """The resource version of the store; None: list first."""
        self._api = api
        self._store = store
        self._selected: dict[str, object] = {"fieldSelector": fields} if fields else {}
        if labels:
            self._selected["labelSelector"] = labels
        self._cached = self._from_cache = cached
        self._backoff = self._fresh = backoff or Backoff(0.5, 30.0)
        self._clock = clock
        self._again = asyncio.Event()
        self._complained = ""

    @property
    def current(self) -> bool:
        """Return whether the first list is complete and there is no outage now."""
        return self.listed.is_set() and not self._complained

    def resync(self) -> None:
        """List everything again, now."""
        self.synced.clear()
        self._again.set()

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            began = self._clock()
            well = await self._follow()
            if self._again.is_set():
                continue
            well = well and self._clock() - began >= BRIEF_SECONDS
            self._backoff = self._fresh if well else self._backoff.failed()
            await asyncio.sleep(self._backoff.pause(random.random()))  # noqa: S311

    async def list(self) -> None:
        """Read everything into the store. Raises as `KubeClient.list`."""
        names: set[str] = set()
        query = {**self._selected}
        if self._from_cache:
            query["resourceVersion"] = "0"  # any that the server has at hand

        def take(item: Any) -> None:
            if (name := self._put(item)) is not None:
                names.add(name)

        metadata = await self._api.list(self._store.path, take, **query)
        self.heard = self._clock()
        self._store.only(names)
        self.version, self._from_cache = str(metadata.get("resourceVersion", "")), self._cached
        self.lists += 1
        self.listed.set()
        self.synced.set()

    async def _follow(self) -> bool:
        """List if necessary, then watch to the end; returns whether that ended regularly."""
        if self._again.is_set():
            self._again.clear()
            self.version = None
        try:
            if self.version is None:
                await self.list()
            await self._watch_until_resync()
        except (ApiRefused, ApiUnavailable, *NOT_UNDERSTOOD) as error:
            self.failures += 1
            if isinstance(error, ApiRefused) and error.status == HTTPStatus.GONE:
                # The watch was away for longer than etcd keeps history (5 min). The cache may be
                # older still than what is in the store, so the next list is the newest.
                self.version, self._from_cache = None, False
                return False
            kind = type(error).__name__
            level = logging.DEBUG if self._complained == kind else logging.WARNING
            log.log(level, "cannot follow %s: %s", self._store.path, error)
            self._complained = kind
            return False
        return True

    async def _watch_until_resync(self) -> None:
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

    async def _watch(self) -> None:
        seconds = random.uniform(*WATCH_SECONDS)  # noqa: S311
        place = {"allowWatchBookmarks": "true", "resourceVersion": self.version, **self._selected}
        async with self._api.watch(self._store.path, seconds, **place) as events:
            if self._complained:
                log.info("the API server answers again; watching %s", self._store.path)
            self._complained, self.heard = "", self._clock()
            async for event in events:
                self._take(event)
                self.heard = self._clock()

    def _take(self, event: Any) -> None:
        kind, item = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            # It comes as an object, behind a status of 200.
            reason, message = item.get("reason", ""), item.get("message", "")
            gone = reason in {"Expired", "Gone"}
            status = HTTPStatus.GONE if gone else int(item.get("code") or 0)
            raise ApiRefused(f"watch {self._store.path}", status, reason, message)
        version = (item.get("metadata") or {}).get("resourceVersion")
        if version:
            self.version = version
        if kind == "DELETED":
            self._store.remove(item)
        elif kind != "BOOKMARK":
            self._put(item)

    def _put(self, item: Any) -> str | None:
        """Return its key, even if the item is malformed: the store keeps the old object then."""
        try:
            name = self._store.name(item)
        except NOT_UNDERSTOOD as error:
            self.skipped.skip(self._store.path, "an object without a name", error)
            return None
        try:
            self._store.put(item)
        except Exception as error:  # noqa: BLE001 - of one object; the others go on
            self.skipped.skip(self._store.path, name, error)
        return name

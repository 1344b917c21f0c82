"""Watches for other managers of this node's GPUs, and withdraws ours while there is one."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any, Final, Generic, TypeVar

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.health.reports import NodeCondition
from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.errors import ApiRefused
from gpumanager.kube.informer import Informer
from gpumanager.node_status.other_managers import (
    Handshake,
    NodeSigns,
    Ownership,
    condition_of_ownership,
    decide,
    event_between,
    other_managers,
    read_signs,
    read_slice,
    reason_of,
    remembered,
)
from gpumanager.node_status.service import NodeCluster

log = logging.getLogger(__name__)

T = TypeVar("T")

NODES: Final = "/api/v1/nodes"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
FIRST_SECONDS: Final = 5.0
"""How long a start waits for the API server's answer. Without one GPUs are offered: a node has to
start while the API server is away."""
ROUND_SECONDS: Final = 1.0
NOT_FOUND: Final = 404


class WatchedObjects(Generic[T]):
    """Keeps what `read` makes of the objects at `path`, but None. Kept by an informer."""

    def __init__(
        self, path: str, read: Callable[[Any], T | None], changed: Callable[[], None]
    ) -> None:
        self.path = path
        self._read, self._changed = read, changed
        self._objects: dict[str, T] = {}

    def all(self) -> tuple[T, ...]:
        return tuple(self._objects.values())

    def name(self, item: Any) -> str:
        return str(item["metadata"]["name"])

    def put(self, item: Any) -> None:
        if (found := self._read(item)) is not None:
            self._objects[self.name(item)] = found
            self._changed()

    def remove(self, item: Any) -> None:
        if self._objects.pop(self.name(item), None):
            self._changed()

    def only(self, names: set[str]) -> None:
        self._objects = {name: one for name, one in self._objects.items() if name in names}


class ManagerWatch:
    """gpus: this node's. withdraw: called with those that another manager has.

    gone_after: seconds without a sign until another manager counts as gone.
    """

    def __init__(
        self,
        cluster: NodeCluster,
        gpus: Callable[[], Collection[GpuUUID]],
        withdraw: Callable[[frozenset[GpuUUID]], Awaitable[None]],
        gone_after: float,
    ) -> None:
        self._cluster, self._gpus, self._withdraw = cluster, gpus, withdraw
        self._gone_after = gone_after
        self._wake = asyncio.Event()
        self._ownership = Ownership()
        self._written: NodeCondition | None = None
        self._withdrawn: frozenset[GpuUUID] = frozenset()
        self._handshake = Handshake()
        self._nodes = WatchedObjects(NODES, read_signs, self._wake.set)
        self._slices = WatchedObjects(SLICES, read_slice, self._wake.set)
        api, node = cluster.api, cluster.node_name
        self._of_node = Informer(api, self._nodes, fields=f"metadata.name={node}", cached=True)
        self._of_slices = Informer(api, self._slices, fields=f"spec.nodeName={node}", cached=True)

    @property
    def reason(self) -> str:
        """Return why no GPU is offered; empty where they are."""
        return reason_of(self._ownership, time.monotonic(), self._gone_after)

    async def first(self) -> None:
        """Look for others before anything is offered; without an answer none is found."""
        lists = (self._of_node.list, self._cluster.informer.list, self._of_slices.list)
        await asyncio.gather(*map(_listed, lists))
        self._ownership = remembered(self._signs())
        await self._look()

    async def run(self) -> None:
        """Watch for as long as the task lives."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._of_node.run())
            group.create_task(self._follow_slices())
            while True:
                await self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ROUND_SECONDS):
                        await self._wake.wait()
                self._wake.clear()

    def _signs(self) -> NodeSigns:
        """Return the node's signs, without a handshake that is left over."""
        signs, now = next(iter(self._nodes.all()), NodeSigns()), time.monotonic()
        self._handshake = self._handshake.read(signs.handshake, now)
        return replace(signs, handshake=self._handshake.fresh(now))

    async def _look(self) -> None:
        pods = self._cluster.store.foreign
        found = other_managers(self._signs(), self._slices.all(), pods, self._gpus())
        before = self._ownership
        self._ownership = after = decide(before, found, time.monotonic(), self._gone_after)
        withdrawn = frozenset(self._gpus() if after.others else ())
        if withdrawn != self._withdrawn:
            self._withdrawn = withdrawn
            await self._withdraw(withdrawn)
        if event := event_between(before, after):
            log.log(logging.ERROR if event.warning else logging.INFO, "%s", event.message)
            self._cluster.event(event)
        condition = condition_of_ownership(after)
        if (before.others or after.others) and condition != self._written:
            self._written = condition
            self._cluster.condition(condition)

    async def _follow_slices(self) -> None:
        """Follow them, where the API server has any: since Kubernetes 1.34."""
        if not self._of_slices.listed.is_set():
            try:
                await self._of_slices.list()
            except ApiRefused as error:
                if error.status == NOT_FOUND:
                    return
            except GpuManagerError as error:
                log.debug("ResourceSlices are not listed yet: %s", error)
        await self._of_slices.run()


async def _listed(list_all: Callable[[], Awaitable[object]]) -> None:
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            await list_all()
    except (GpuManagerError, TimeoutError) as error:
        log.debug("not all signs of other GPU managers could be read: %s", error)

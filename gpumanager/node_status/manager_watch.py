"""Watches for other managers of this node's GPUs, and withdraws ours while there is one."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from http import HTTPStatus
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.health.reports import NodeCondition
from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.errors import ApiRefused, Object
from gpumanager.kube.informer import Informer, ObjectStore
from gpumanager.node_status.other_managers import (
    HANDSHAKE_SECONDS,
    Ownership,
    condition_of_ownership,
    decide,
    event_between,
    handshake,
    other_managers,
    reason_of,
    remembered,
)
from gpumanager.node_status.service import NodeCluster

log = logging.getLogger(__name__)

SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
FIRST_SECONDS: Final = 5.0
"""How long a start waits for the API server's answer. Without one GPUs are offered: a node has to
start while the API server is away."""
ROUND_SECONDS: Final = 1.0


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
        self._ownership = Ownership()
        self._written: NodeCondition | None = None
        self._withdrawn: frozenset[GpuUUID] = frozenset()
        self._handshake = "", 0.0
        """HAMi's, and since when it has been this one. Its own time is not read: it has several
        forms, and comes from two clocks."""
        self._has_slices = True
        self._slices = ObjectStore(SLICES, dict)
        fields = f"spec.nodeName={cluster.node_name}"
        self._informer = Informer(cluster.api, self._slices, fields=fields, cached=True)

    @property
    def reason(self) -> str:
        """Return why no GPU is offered; empty where they are."""
        return reason_of(self._ownership, time.monotonic(), self._gone_after)

    async def first(self) -> None:
        """Look for others before anything is offered; without an answer none is found."""
        cluster = self._cluster
        informers = (cluster.node_informer, cluster.pod_informer, self._informer)
        await asyncio.gather(*map(self._list, informers))
        if cluster.node:
            self._ownership = remembered(cluster.node)
        await self._look()

    async def run(self) -> None:
        """Watch for as long as the task lives."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_slices())
            while True:
                await self._look()
                await asyncio.sleep(ROUND_SECONDS)

    async def _follow_slices(self) -> None:
        """Follow them, where the API server has any: it may not have answered `first`."""
        if self._has_slices and not self._informer.listed.is_set():
            await self._list(self._informer)
        if self._has_slices:
            await self._informer.run()

    async def _list(self, informer: Informer) -> None:
        try:
            async with asyncio.timeout(FIRST_SECONDS):
                await informer.list()
        except (GpuManagerError, TimeoutError) as error:
            log.debug("not all signs of other GPU managers could be read: %s", error)
            if isinstance(error, ApiRefused) and error.status == HTTPStatus.NOT_FOUND:
                self._has_slices = False  # they are new in Kubernetes 1.34

    async def _look(self) -> None:
        node: Object = self._cluster.node or {"metadata": {}}
        now = time.monotonic()
        if handshake(node) != self._handshake[0]:
            self._handshake = handshake(node), now
        found = other_managers(
            node,
            self._slices.known.values(),
            self._cluster.pods.foreign(),
            self._gpus(),
            renewed=now - self._handshake[1] < HANDSHAKE_SECONDS,
        )
        before = self._ownership
        self._ownership = after = decide(before, "; ".join(found), now, self._gone_after)
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

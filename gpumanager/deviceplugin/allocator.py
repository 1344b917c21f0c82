"""The allocation service: answers the kubelet about devices, and keeps what it promised.

One admission at a time, under one lock. A promise is written to the journal before it is answered;
whose it is, is settled when its container starts. GetPreferredAllocation and Allocate look at
nothing but memory, the disk and the local kubelet's list of pods (decision 0097), because
the kubelet calls them without a timeout and stands still meanwhile; the container runtime is asked
only where a pod would be refused, for good, because of pods that look ended. What can be decided
without the world is decided in the pure modules beside this one.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from gpumanager.deviceplugin.admission.handler import AllocateHandler
from gpumanager.deviceplugin.admission.steering import PreferenceCall, steer
from gpumanager.deviceplugin.admission.tracker import AdmissionTracker
from gpumanager.deviceplugin.advertised import advertised
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ids import Device
from gpumanager.deviceplugin.device_ledger import DeviceLedger
from gpumanager.deviceplugin.identity.evidence import PodLister
from gpumanager.deviceplugin.identity.resolver import IdentityResolver
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import Refused
from gpumanager.grants.journal import Journal
from gpumanager.grants.store import GrantStore
from gpumanager.isolation.edits import ContainerEdits

logger = logging.getLogger(__name__)
PRE_START_AGE: Final = 0.5
"""Seconds that the list of pods may be old when a container starts, so that its two resources need
one. A look under load takes as long."""


class Allocator:
    """Call `kubelet_started` before each registration with a kubelet."""

    def __init__(self, topology: Topology, deps: Dependencies) -> None:
        self._ledger = DeviceLedger(topology)
        self._deps = deps
        self._store = GrantStore(deps.journal, deps.isolation)
        self._lister = PodLister(deps.pods)
        self._tracker = AdmissionTracker(self._ledger, self._store, self._lister, deps.elapsed)
        self._resolver = IdentityResolver(self._ledger, self._store, deps)
        self._handler = AllocateHandler(self._ledger, self._store, self._tracker, deps)
        self._lock = asyncio.Lock()
        self._unhealthy: frozenset[GpuUUID] = frozenset()

    @property
    def journal(self) -> Journal:
        """What is promised now."""
        return self._store.journal

    def devices(self, resource: str) -> tuple[Device, ...]:
        """All devices of a resource, GPU by GPU; then what pods hold of no GPU that is here."""
        return advertised(self._ledger.ids, self._store.live(), resource, self._ledger.closed)

    @property
    def mismatches(self) -> int:
        """Swaps so far: containers that began with what was promised for another pod."""
        return self._resolver.mismatches

    @property
    def ledger(self) -> DeviceLedger:
        """For counting, with the topology of now; nobody else changes it."""
        return self._ledger

    @property
    def topology(self) -> Topology:
        """The GPUs of this node, as far as known."""
        return self._ledger.topology

    @property
    def unhealthy(self) -> frozenset[GpuUUID]:
        """GPUs that are given to nobody: out of use, or in another interface's hands."""
        return self._ledger.closed

    def mark_unhealthy(self, gpus: Iterable[GpuUUID]) -> None:
        """These GPUs, and no others, are advertised as unhealthy, and given to nobody, from now."""
        self._unhealthy = frozenset(gpus)
        self._close()

    def _close(self) -> None:
        claimed = {gpu for one in self._store.others() for gpu in one.gpus}
        self._ledger.closed = self._unhealthy | claimed

    async def adopt(self, topology: Topology) -> None:
        """From now on these are the GPUs of this node; raises IndistinctGPUs."""
        async with self._lock:
            self._ledger.adopt(topology)

    async def kubelet_started(self) -> None:
        """Nothing of ours can be under admission now: pods listed already are not new."""
        async with self._lock:
            await self._tracker.begin_anew()

    async def preferred(
        self,
        resource: str,
        available: Collection[str],
        must_include: Collection[str],
        size: int,
    ) -> tuple[str, ...]:
        """GetPreferredAllocation: `size` of `available`, if there are so many.

        Raises UnknownDeviceID.
        """
        async with self._lock:
            open_ = await self._tracker.observe(resource, size)
            await self._store.release(self._handler.conflict(open_, available).over)
            question = PreferenceCall(resource, size, tuple(available), tuple(must_include))
            policy, live = self._deps.gpu_policy, self._store.live()
            offer = steer(self._ledger, live, open_, question, gpu_policy=policy)
            self._tracker.keep(replace(open_, awaiting=resource, plan=offer.plan))
            return offer.ids

    async def allocate(self, resource: str, ids: Collection[str]) -> ContainerEdits | Refused:
        """Allocate: what the container gets; Refused is final for its pod.

        Raises UnknownDeviceID, JournalUnwritable, and what the virtual manager raises.
        """
        async with self._lock:
            return await self._handler.allocate(resource, ids)

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        """PreStartContainer: whose the IDs are is settled, and its limits are set.

        Safe to repeat. Raises NotResolved, after which the kubelet tries again.
        """
        view = await self._lister.list(PRE_START_AGE)
        checkpoint, containers = await self._deps.books.containers(
            resource, ids, view, self._store.live(), admitting=self._tracker.admitting
        )
        running = await self._resolver.running(containers, view)
        async with self._lock:
            await self._resolver.settle(containers, view, checkpoint, running)

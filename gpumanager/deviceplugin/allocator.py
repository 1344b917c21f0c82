"""The allocation service: answers the kubelet about devices, and keeps what it promised.

One admission at a time, under one lock. A promise is written to the journal before it is answered;
whose it is, is settled when its container starts. GetPreferredAllocation and Allocate look at
nothing but memory, the disk and the local kubelet's list of pods (decision 0097), because
the kubelet calls them without a timeout and stands still meanwhile; the container runtime is asked
only where a pod would be refused, for good, because of pods that look ended. What can be decided
without the world is decided in the pure modules beside this one.

A refusal costs a pod its life, so room is looked for before one is given: with those who look
ended, and in another reading of who asks. An agent that died in an admission left a promise to a
pod that was rejected for that. And of a pod that has ended the kubelet's offer only shows the
resource that it asks for: who had a whole GPU and no memory is not seen to be gone when memory is
asked for first. A static pod that is put back under its UID looks as if it had never gone.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from gpumanager.deviceplugin.admission.decision import AllocateCall, decide
from gpumanager.deviceplugin.admission.steering import PreferenceCall, steer
from gpumanager.deviceplugin.admission.tracker import AdmissionTracker
from gpumanager.deviceplugin.admission.transaction import Transaction
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ids import Device, UnknownDeviceID
from gpumanager.deviceplugin.device_ledger import DeviceLedger, accepted, advertised
from gpumanager.deviceplugin.identity.evidence import PodLister, lived_on, who_lives
from gpumanager.deviceplugin.identity.lifecycle import Conflict, again, conflict, ended, never_given
from gpumanager.deviceplugin.identity.resolver import IdentityResolver
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.grant import Grant, Refused, State
from gpumanager.grants.journal import Journal
from gpumanager.grants.store import GrantStore
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.names import ANNOTATION_DEVICE, VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK

logger = logging.getLogger(__name__)
PRE_START_AGE: Final = 0.5
"""Seconds that the list of pods may be old when a container starts, so that its two resources need
one. A look under load takes as long."""
HURRY: Final = 1.0
"""Seconds for the container runtime to tell who runs, while the kubelet waits."""


class Allocator:
    """Call `kubelet_started` before each registration with a kubelet."""

    def __init__(self, topology: Topology, deps: Dependencies) -> None:
        self._ledger = DeviceLedger(topology)
        self._deps = deps
        self._store = GrantStore(deps.journal, deps.isolation)
        self._lister = PodLister(deps.pods)
        self._tracker = AdmissionTracker(self._ledger, self._store, self._lister, deps.elapsed)
        self._resolver = IdentityResolver(self._ledger, self._store, deps)
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
            await self._store.release(self._conflict(open_, available).over)
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
            open_ = await self._tracker.allocating(resource, ids)
            open_, decided = await self._decide_with_retry(open_, resource, ids)
            if isinstance(decided, Refused):
                await self._abandon(open_)
                return decided
            edits = await self._promise(decided, open_)
            return edits if resource == VCORE else ContainerEdits()

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

    def _conflict(self, open_: Transaction, ids: Collection[str]) -> Conflict:
        """Who else was promised any of `ids`."""
        store, view = self._store, self._tracker.view
        return conflict(store.live(), open_.admission, ids, view, store.lingering)

    async def _decide_with_retry(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> tuple[Transaction, Grant | Refused]:
        """Decided once; then with more room; then as the beginning of somebody else's."""
        decided = await self._decide(open_, resource, ids)
        if isinstance(decided, Refused) and await self._make_room(open_):
            decided = await self._decide(open_, resource, ids)
        other = self._tracker.apart(open_, resource, len(ids))
        if isinstance(decided, Refused) and other:
            open_ = self._tracker.keep(other)
            decided = await self._decide(open_, resource, ids)
        return open_, decided

    async def _decide(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> Grant | Refused:
        if not ids:
            return Refused(f"no devices are asked for of {resource}")
        deps = self._deps
        try:
            demand = AllocateCall(resource, accepted(self._ledger.ids, ids), deps.clock())
        except UnknownDeviceID as error:
            return Refused(str(error))
        found = self._conflict(open_, ids)
        await self._store.release(found.over)
        if found.refused:
            return found.refused
        self._store.doubt(found.doubted)
        return decide(
            self._ledger,
            self._store.live(),
            open_,
            demand,
            share_mode=deps.share_mode,
            gpu_policy=deps.gpu_policy,
        )

    async def _make_room(self, open_: Transaction) -> bool:
        """Whether there is more room now. Of those that look ended, those that nobody runs with."""
        live, view, admission = self._store.live(), self._tracker.view, open_.admission
        names = {*never_given(live, admission, await self._deps.books.read(), view)}
        over = ended(live, admission, view) | again(live, open_, view)
        if over and (running := await who_lives(self._deps.runtime, HURRY)) is not None:
            names |= over - lived_on(running, live)
        await self._store.release(names)
        return bool(names)

    async def _promise(self, decided: Grant, open_: Transaction) -> ContainerEdits:
        """On the disk first, and then held, with the memory that it will ask for, if that is known.

        Raises JournalUnwritable, and then nothing has changed; and what its back end raises.
        """
        await self._store.put(decided)
        if not decided.isolation:  # memory came first: nothing is mounted for that
            return ContainerEdits()
        memory = decided.blocks or (open_.request.blocks if open_.request else 0)
        shares = {uuid: replace(one, blocks=memory) for uuid, one in decided.shares.items()}
        gpus = tuple(gpu for gpu in self._ledger.topology.gpus if gpu.uuid in shares)
        annotations = {
            VCORE: str(decided.cores),
            ANNOTATION_DEVICE: ",".join(f"/dev/nvidia{gpu.minor}" for gpu in gpus),
        }
        if memory or open_.request:
            annotations[VMEMORY] = str(memory * MEMORY_BLOCK)
        try:
            edits = await self._deps.isolation.prepare(replace(decided, shares=shares), gpus)
        except (GpuManagerError, OSError):
            await self._store.release([decided.id])
            await self._abandon(open_)
            raise
        return edits + ContainerEdits(annotations=annotations)

    async def _abandon(self, open_: Transaction) -> None:
        """The pod is refused for good: what else it was promised is free.

        Not where only the order of calls says that it was promised to the same pod.
        """
        if not open_.candidates:
            return
        await self._store.release(
            a.id
            for a in self._store.live()
            if a.ids.admission == open_.admission and a.state is State.ANSWERED
        )
        self._tracker.close()

"""The allocator: answers the kubelet's calls about devices, and keeps the grants.

One admission at a time, under one lock. A grant is written to the journal before it is answered;
its pod is confirmed when its container starts (PreStartContainer). GetPreferredAllocation and
Allocate read only memory, the disk and the local kubelet's list of pods (decision 0097): the
kubelet calls them without a timeout and admits no other pod meanwhile. The container runtime is
asked only before a pod is refused for good. Decisions are pure functions in the modules beside this
one.

The kubelet never retries a refused pod. So before a refusal the allocator releases grants that look
ended, and tries the call as the first one of another pod. Examples of grants to release:

* The agent stopped in the middle of an admission: the kubelet rejected that pod, its grant is left.
* A pod with a whole GPU and no memory has ended, and the next pod asks for memory first: the
  kubelet's offer of memory IDs does not show that the GPU is free.
* A static pod was deleted and created again under the same UID, as if it had never gone.
"""

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from gpumanager.deviceplugin.admission.decision import AllocateCall, decide
from gpumanager.deviceplugin.admission.steering import PreferenceCall, steer
from gpumanager.deviceplugin.admission.tracker import AdmissionTracker
from gpumanager.deviceplugin.admission.transaction import Transaction, asking
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ids import Device, UnknownDeviceID
from gpumanager.deviceplugin.device_ledger import (
    DeviceLedger,
    accepted,
    advertised,
    all_ids,
    ids_of,
)
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
PENDING: Final = "Pending"
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
        self._lock = self._store.lock
        self._unhealthy: frozenset[GpuUUID] = frozenset()
        self._elsewhere: frozenset[GpuUUID] = frozenset()
        self._closing: frozenset[GpuUUID] = frozenset()
        self._withdrawn: frozenset[GpuUUID] = frozenset()

    @property
    def journal(self) -> Journal:
        """The grants in force."""
        return self._store.journal

    def devices(self, resource: str) -> tuple[Device, ...]:
        """All devices of a resource, GPU by GPU; then what pods hold of no GPU that is here."""
        ids, live = self._ledger.ids, self._store.live()
        found = advertised(ids, live, resource, self.withheld, self._closing)
        if not self._withdrawn:
            return found
        held = {i for one in live for i in ids_of(one, resource)}
        return tuple(one for one in found if one.device_id in held)

    @property
    def mismatches(self) -> int:
        """Containers so far that started with a grant made for another pod (swaps)."""
        return self._resolver.mismatches

    @property
    def ledger(self) -> DeviceLedger:
        """For counting, on the present topology; read only."""
        return self._ledger

    @property
    def topology(self) -> Topology:
        """The GPUs of this node, as far as known."""
        return self._ledger.topology

    @property
    def store(self) -> GrantStore:
        """For the other interface, which shares its journal."""
        return self._store

    @property
    def unhealthy(self) -> frozenset[GpuUUID]:
        """GPUs that are out of use."""
        return self._unhealthy

    @property
    def withheld(self) -> frozenset[GpuUUID]:
        """GPUs on which nothing is placed, whether healthy or not."""
        return self._ledger.closed | self._ledger.leaving

    def mark_unhealthy(self, gpus: Iterable[GpuUUID]) -> None:
        """From now on just these GPUs are advertised as unhealthy and get nothing new."""
        self._unhealthy = frozenset(gpus)
        self._close()

    def withdraw(self, gpus: frozenset[GpuUUID]) -> None:
        """From now on another manager has these GPUs: while there are any, only IDs that pods hold
        are advertised, and on these GPUs nothing new is granted."""
        self._withdrawn = gpus
        self._close()

    def offer(
        self,
        elsewhere: frozenset[GpuUUID],
        leaving: frozenset[GpuUUID],
        closing: frozenset[GpuUUID] = frozenset(),
    ) -> None:
        """From now on `elsewhere` are another interface's; `leaving` get nothing new, but a call
        that has their IDs already is served. closing: those of which schedulers learn just now."""
        self._elsewhere, self._ledger.leaving, self._closing = elsewhere, leaving, closing
        self._close()

    def in_use(self) -> frozenset[GpuUUID]:
        """GPUs that a grant has, and those whose device IDs a pod holds for another GPU."""
        ids, live = self._ledger.ids, self._store.live()
        named = {ids.decode(i).gpu.uuid for one in live for i in all_ids(one) if i in ids}
        return frozenset(named.union(*(one.gpus for one in live)))

    async def arriving(self) -> bool:
        """Whether a pod is bound to this node that asks for devices and has none yet."""
        holders = {one.owner for one in self._store.live()}
        pods = await self._lister.list() or ()
        return any(p.phase == PENDING and asking(p) and p.uid not in holders for p in pods)

    async def release_ended(self) -> None:
        """Release the grants of ended pods of which no container runs, without waiting as long as
        the reconciler does. Raises JournalUnwritable."""
        async with self._lock:
            view, live = await self._lister.list(), self._store.live()
            over = {
                i for i in ended(live, "", view) if not self._tracker.under(self.journal.grants[i])
            }
            running = await who_lives(self._deps.runtime, HURRY) if over else None
            if running is not None:
                await self._store.release(over - lived_on(running, live))

    def _close(self) -> None:
        claimed = {gpu for one in self._store.others() if one.counts for gpu in one.gpus}
        self._ledger.foreign = self._elsewhere | claimed
        self._ledger.closed = self._unhealthy | self._ledger.foreign | self._withdrawn

    async def adopt(self, topology: Topology) -> None:
        """Use these GPUs from now on. Raises IndistinctGPUs."""
        async with self._lock:
            self._ledger.adopt(topology)

    async def kubelet_started(self) -> None:
        """Forget the open admission: pods that are listed already are not new."""
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
            edits = await self._grant(decided, open_)
            return edits if resource == VCORE else ContainerEdits()

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        """PreStartContainer: confirm the pod that has these IDs, and set its limits.

        Safe to repeat. Raises NotResolved, after which the kubelet tries again.
        """
        view = await self._lister.list(PRE_START_AGE)
        checkpoint, containers = await self._deps.books.containers(
            resource, ids, view, self._store.live(), admitting=self._tracker.admitting
        )
        running = await self._resolver.running(containers, view)
        async with self._lock:
            await self._resolver.confirm(containers, view, checkpoint, running)

    def _conflict(self, open_: Transaction, ids: Collection[str]) -> Conflict:
        """The other grants that hold any of `ids`."""
        store, view = self._store, self._tracker.view
        return conflict(store.live(), open_.admission, ids, view, store.lingering)

    async def _decide_with_retry(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> tuple[Transaction, Grant | Refused]:
        """Decide; on a refusal with more room, then as the first call of another pod."""
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
        self._store.suspect(found.suspect)
        return decide(
            self._ledger,
            self._store.live(),
            open_,
            demand,
            share_mode=deps.share_mode,
            gpu_policy=deps.gpu_policy,
        )

    async def _make_room(self, open_: Transaction) -> bool:
        """Release grants that look ended and no container uses; returns whether any was."""
        live, view, admission = self._store.live(), self._tracker.view, open_.admission
        names = {*never_given(live, admission, await self._deps.books.read(), view)}
        over = ended(live, admission, view) | again(live, open_, view)
        if over and (running := await who_lives(self._deps.runtime, HURRY)) is not None:
            names |= over - lived_on(running, live)
        await self._store.release(names)
        return bool(names)

    async def _grant(self, decided: Grant, open_: Transaction) -> ContainerEdits:
        """Write the grant, then prepare its back end, with the memory of its request if known.

        Raises JournalUnwritable, and then nothing has changed; and what the back end raises.
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
        """The pod is refused for good: release the grants of its other containers.

        Not if only the order of the calls says that they are of the same pod.
        """
        if not open_.candidates:
            return
        await self._store.release(
            a.id
            for a in self._store.live()
            if a.ids.admission == open_.admission and a.state is State.ANSWERED
        )
        self._tracker.close()

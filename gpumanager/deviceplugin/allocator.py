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

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import Final

from gpumanager.deviceplugin.admission.decision import claimant, decide
from gpumanager.deviceplugin.admission.steering import PreferenceCall, steer
from gpumanager.deviceplugin.admission.tracker import AdmissionTracker
from gpumanager.deviceplugin.admission.transaction import Transaction, asking
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ledger import accepted, advertised, holders_of, ids_of
from gpumanager.deviceplugin.identity.evidence import PodLister, list_live_containers, lived_on
from gpumanager.deviceplugin.identity.resolver import IdentityResolver
from gpumanager.deviceplugin.identity.verdict import (
    GrantFacts,
    GrantOutcome,
    Occasion,
    ended_grants,
    verdict,
)
from gpumanager.deviceplugin.reconciler import Disagreement, Reconciler
from gpumanager.deviceplugin.recovery import recover
from gpumanager.errors import GpuManagerError
from gpumanager.grants.device_ids import Device, UnknownDeviceID
from gpumanager.grants.grant import Grant, State
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.node import Node
from gpumanager.grants.refusals import NotResolved, Refused
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ContainerEdits
from gpumanager.names import ANNOTATION_DEVICE, DEVICE_PLUGINS, VCORE, VMEMORY
from gpumanager.units import MEMORY_BLOCK

logger = logging.getLogger(__name__)
PRE_START_AGE: Final = 0.5
"""Seconds that the list of pods may be old when a container starts, so that its two resources need
one. A look under load takes as long."""
PENDING_PHASE: Final = "Pending"
LINGERING_SECONDS: Final = 1.0
"""Between passes while a container outlives its pod, whose GPU is free once it has ended."""
HURRIED_RUNTIME_SECONDS: Final = 1.0
"""Seconds for the container runtime to tell who runs, while the kubelet waits."""


class Allocator:
    """Call `take_up` once, before registration, `kubelet_started` before each registration with a
    kubelet, and `serve_again` as soon as possible after it."""

    def __init__(self, node: Node, deps: Dependencies) -> None:
        self.node = node
        self._deps = deps
        self._store, self._lock = node.store, node.lock
        self._lister = PodLister(deps.pods)
        self._tracker = AdmissionTracker(node, self._lister, deps.elapsed)
        self._resolver = IdentityResolver(node, deps)
        self._reconciler = Reconciler(node, deps)
        self._foreign: frozenset[str] = frozenset()
        self.on_devices_changed: Callable[[], Awaitable[None]] | None = None

    @property
    def ledger(self) -> Ledger:
        """What device plugins may grant now."""
        return self.node.ledger(DEVICE_PLUGINS)

    def devices(self, resource: str) -> tuple[Device, ...]:
        """Return all devices of a resource, GPU by GPU; then what pods hold of no GPU that is
        here."""
        ledger, live = self.ledger, self._live()
        unhealthy = {*ledger.closed, *ledger.leaving}
        found = advertised(ledger.ids, live, resource, unhealthy, self.node.closing)
        if not self.node.withdrawn:
            return found
        held = {i for one in live for i in ids_of(one, resource)}
        return tuple(one for one in found if one.device_id in held)

    @property
    def mismatches(self) -> int:
        """Containers so far that started with a grant made for another pod (swaps)."""
        return self._resolver.mismatches

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """What the last reconciliation found."""
        return self._reconciler.disagreements

    async def arriving(self) -> bool:
        """Return whether a pod is bound to this node that asks for devices and has none yet."""
        holders = {one.owner for one in self._live()}
        pods = await self._lister.list() or ()
        return any(p.phase == PENDING_PHASE and asking(p) and p.uid not in holders for p in pods)

    async def release_ended(self) -> None:
        """Release the grants of ended pods of which no container runs, without waiting as long as
        the reconciler does. Raises JournalUnwritable."""
        async with self._lock:
            facts = GrantFacts(await self._lister.list(), admission=self._tracker.admitted_now)
            await self.node.release(await self._over(Occasion.MOVE, facts))

    async def kubelet_started(self) -> None:
        """Forget the open admission: pods that are listed already are not new."""
        async with self._lock:
            await self._tracker.begin_anew()

    async def preferred(
        self, resource: str, available: Collection[str], must_include: Collection[str], size: int
    ) -> tuple[str, ...]:
        """GetPreferredAllocation: `size` of `available`, if there are so many.

        Raises UnknownDeviceID.
        """
        async with self._lock:
            open_ = await self._tracker.observe(resource, size)
            question = PreferenceCall(resource, size, frozenset(available), tuple(must_include))
            others = holders_of(self._live(), question.available)
            await self.node.release(ended_grants(others, Occasion.CONTESTED, self._contest(open_)))
            policy, live = self._deps.gpu_policy, self._live()
            offered, plan = steer(self.ledger, live, open_, question, gpu_policy=policy)
            self._tracker.keep(replace(open_, awaiting=resource, plan=plan))
            return offered

    async def allocate(self, resource: str, ids: Collection[str]) -> ContainerEdits | Refused:
        """Allocate: what the container gets; Refused is final for its pod.

        Raises UnknownDeviceID, JournalUnwritable, and what the virtual manager raises.
        """
        async with self._lock:
            open_ = await self._tracker.allocating(resource, ids)
            decided = await self._decide(open_, resource, ids)
            if isinstance(decided, Refused):  # release grants that look ended and nothing uses
                checkpoint = await self._deps.books.read()
                facts = GrantFacts(self._tracker.view, checkpoint, admission=open_)
                if names := await self._over(Occasion.NO_ROOM, facts):
                    await self.node.release(names)
                    decided = await self._decide(open_, resource, ids)
            if isinstance(decided, Refused) and (
                other := self._tracker.apart(open_, resource, len(ids))
            ):  # as the first call of another pod
                open_ = self._tracker.keep(other)
                decided = await self._decide(open_, resource, ids)
            if isinstance(decided, Refused):
                self._deps.events.refused(claimant(open_.candidate), decided.text)
                await self._abandon(open_)
                return decided
            edits = await self._grant(decided, open_)
            return edits if resource == VCORE else ContainerEdits()

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        """PreStartContainer: confirm the pod that has these IDs, and set its limits.

        Safe to repeat. Raises NotResolved, after which the kubelet tries again.
        """
        try:
            view = await self._lister.list(PRE_START_AGE)
            checkpoint, containers = await self._deps.books.containers(resource, ids, view)
            running = await self._resolver.running(containers, view)
            async with self._lock:
                await self._resolver.confirm(containers, view, checkpoint, running)
        except NotResolved as error:
            held = (one for one in self._live() if set(ids_of(one, resource)) == set(ids))
            pod = next((one.pod or one.candidate for one in held), None)
            self._deps.events.postponed(pod, str(error))
            raise

    async def recover(self) -> None:
        """Both halves of a recovery, one after the other."""
        await self.take_up()
        await self.serve_again()

    async def take_up(self) -> None:
        """Recover the grants after a start. From now on the kubelet may call."""
        async with self._lock:
            await recover(self.node, self._deps, self._lister)
            self._foreign = self.foreign()

    async def serve_again(self) -> None:
        """Enforce the recovered grants of all interfaces again, one after another.

        The kubelet may call meanwhile, and waits for one of them at most.
        """
        async with self._lock:
            await self._store.tidy()
        for one in self.node.journal.live():
            async with self._lock:
                await self._store.serve_again(one.id)
            await asyncio.sleep(0)

    async def reconcile(self) -> tuple[AllocationID, ...]:
        """One pass of the reconciler; returns the released grants.

        Raises JournalUnwritable.
        """
        look = await self._reconciler.look(self._live(), await self._lister.list())
        async with self._lock:
            released = await self._reconciler.act(look, self._tracker.under)
        # Advertise again when IDs that only pods had are released.
        foreign = self.foreign()
        if foreign != self._foreign and self.on_devices_changed is not None:
            await self.on_devices_changed()
        self._foreign = foreign
        return released

    async def reconcile_every(self, period: float) -> None:
        """`reconcile` every `period` seconds, for as long as the task lives."""
        while True:
            lingering = self._store.lingering
            await asyncio.sleep(min(period, LINGERING_SECONDS) if lingering else period)
            try:
                await self.reconcile()
            except (GpuManagerError, OSError) as error:
                logger.warning("reconciliation failed, retrying: %s", error)

    def foreign(self) -> frozenset[str]:
        """Device IDs that are advertised only because pods hold them."""
        held, advertised = (i for a in self._live() for i in a.ids.all), self.ledger.ids
        return frozenset(i for i in held if i not in advertised)

    def _live(self) -> tuple[Grant, ...]:
        return self.node.grants(DEVICE_PLUGINS)

    async def _over(self, occasion: Occasion, facts: GrantFacts) -> frozenset[AllocationID]:
        """Return the grants that are over. The runtime is asked only about those that are over
        unless a container runs with them: it may be slow, and the kubelet waits."""
        live = self._live()
        ended = ended_grants(live, occasion, facts)
        if not any(verdict(a, occasion, facts).ask_runtime for a in live if a.id in ended):
            return ended
        running = await list_live_containers(self._deps.runtime, HURRIED_RUNTIME_SECONDS)
        known = None if running is None else lived_on(running, live)
        return ended_grants(live, occasion, replace(facts, running=known))

    def _contest(self, open_: Transaction) -> GrantFacts:
        """Return what is known of grants whose devices a call of `open_` has."""
        return GrantFacts(self._tracker.view, admission=open_, lingering=self._store.lingering)

    async def _decide(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> Grant | Refused:
        if not ids:
            return Refused(f"no devices are asked for of {resource}")
        deps = self._deps
        try:
            known = accepted(self.ledger.ids, ids)
        except UnknownDeviceID as error:
            return Refused(str(error))
        holders = holders_of(self._live(), ids)
        others = [one for one in holders if one.ids.admission != open_.admission]
        if others and (refused := await self._take_from(others, open_, ids)):
            return refused
        return decide(
            self.ledger,
            self._live(),
            open_,
            resource,
            known,
            now=deps.clock(),
            share_mode=deps.share_mode,
            gpu_policy=deps.gpu_policy,
        )

    async def _take_from(
        self, others: Iterable[Grant], open_: Transaction, ids: Collection[str]
    ) -> Refused | None:
        """The kubelet gives `ids` of these grants to the pod of `open_`; unless one still runs."""
        facts = self._contest(open_)
        contested = [(one, verdict(one, Occasion.CONTESTED, facts).outcome) for one in others]
        await self.node.release(one.id for one, said in contested if said is GrantOutcome.OVER)
        for one, said in contested:
            if said is GrantOutcome.KEEP:
                return Refused(
                    f"device {min(set(ids).intersection(one.ids.all))} belongs to {one.pod}, "
                    "which still runs; the kubelet has offered it a second time: create the pod "
                    "again"
                )
        self._store.suspect(one.id for one, said in contested if said is GrantOutcome.SUSPECT)
        return None

    async def _grant(self, decided: Grant, open_: Transaction) -> ContainerEdits:
        """Write the grant, then prepare its back end, with the memory of its request if known.

        Raises JournalUnwritable, and then nothing has changed; and what the back end raises.
        """
        await self.node.grant(decided)
        if not decided.isolation:  # memory came first: nothing is mounted for that
            return ContainerEdits()
        memory = decided.blocks or (open_.request.blocks if open_.request else 0)
        shares = {uuid: replace(one, blocks=memory) for uuid, one in decided.shares.items()}
        gpus = tuple(gpu for gpu in self.ledger.topology.gpus if gpu.uuid in shares)
        annotations = {
            VCORE: str(decided.cores),
            ANNOTATION_DEVICE: ",".join(f"/dev/nvidia{gpu.minor}" for gpu in gpus),
        }
        if memory or open_.request:
            annotations[VMEMORY] = str(memory * MEMORY_BLOCK)
        try:
            edits = await self._deps.isolation.prepare(replace(decided, shares=shares), gpus)
        except (GpuManagerError, OSError):
            await self.node.release([decided.id])
            await self._abandon(open_)
            raise
        return edits + ContainerEdits(annotations=annotations)

    async def _abandon(self, open_: Transaction) -> None:
        """The pod is refused for good: release the grants of its other containers.

        Not if only the order of the calls says that they are of the same pod.
        """
        if not open_.candidates:
            return
        await self.node.release(
            a.id
            for a in self._live()
            if a.ids.admission == open_.admission and a.state is State.ANSWERED
        )
        self._tracker.close()

"""The allocation service: answers the kubelet about devices, and keeps what it promised.

One admission at a time, under one lock. A promise is written to the journal before it is answered;
whose it is, is settled when its container starts. GetPreferredAllocation and Allocate look at
nothing but memory, the disk and the local kubelet's list of pods (200 ms at most), because
the kubelet calls them without a timeout and stands still meanwhile; the container runtime is asked
only where a pod would be refused, for good, because of pods that look ended. What can be decided
without the world is decided in the pure modules beside this one.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from gpumanager.allocator.admission import PAIR_AGE, Admission, Call, Transaction, View, apart, hear
from gpumanager.allocator.advertised import advertised
from gpumanager.allocator.answer import Answer, answer
from gpumanager.allocator.calm import Calm
from gpumanager.allocator.decision import Demand, Refused, decide
from gpumanager.allocator.device_ids import Device, UnknownDeviceID
from gpumanager.allocator.evidence import Eyes
from gpumanager.allocator.foresight import Foreseen, Foresight, Ground
from gpumanager.allocator.journal import Allocation, Journal, State
from gpumanager.allocator.journal_file import JournalUnwritable
from gpumanager.allocator.ledger import Ledger
from gpumanager.allocator.lifecycle import (
    UNDISPUTED,
    Conflict,
    conflict,
    rejected,
)
from gpumanager.allocator.promises import Promises
from gpumanager.allocator.reconciler import Reconciler
from gpumanager.allocator.reconciliation import Disagreement
from gpumanager.allocator.recovery import recover
from gpumanager.allocator.room import given_to_nobody
from gpumanager.allocator.settler import Settler
from gpumanager.allocator.steering import Question, could_hold, steer
from gpumanager.allocator.surroundings import Surroundings
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.kubelet.pods import PodView
from gpumanager.names import VCORE
from gpumanager.virtual.values import AllocationID

logger = logging.getLogger(__name__)


class Allocator:
    """Call `take_up` once, then `kubelet_started` before each registration with a kubelet.

    And `serve_again` once, as soon as there is time for it.
    """

    def __init__(self, topology: Topology, surroundings: Surroundings) -> None:
        self._ledger = Ledger(topology)
        self._around = surroundings
        self._promises = Promises(surroundings.journal, surroundings.virtual)
        self._admission = Admission()
        self._view: View | None = None
        self._eyes = Eyes(surroundings.pods)
        self._reconciler = Reconciler(self._ledger, self._promises, surroundings)
        self._settler = Settler(self._ledger, self._promises, surroundings)
        self._wake = asyncio.Event()
        self._foreign: frozenset[str] = frozenset()
        self.on_devices_changed: Callable[[], Awaitable[None]] | None = None
        self._lock = asyncio.Lock()
        self._foresight = Foresight()
        self.calm = Calm()
        """For those who can wait while the kubelet does not."""

    @property
    def journal(self) -> Journal:
        """What is promised now."""
        return self._promises.journal

    def devices(self, resource: str) -> tuple[Device, ...]:
        """All devices of a resource, GPU by GPU; then what pods hold of no GPU that is here."""
        return advertised(self._ledger.ids, self._promises.live(), resource, self._ledger.closed)

    def foreign(self) -> frozenset[str]:
        """Device IDs that are advertised only because pods hold them."""
        held = (i for a in self._promises.live() for i in (*a.core_ids, *a.memory_ids))
        return frozenset(i for i in held if i not in self._ledger.ids)

    @property
    def mismatches(self) -> int:
        """Swaps so far: containers that began with what was promised for another pod."""
        return self._settler.mismatches

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """What the last reconciliation found."""
        return self._reconciler.disagreements

    @property
    def ledger(self) -> Ledger:
        """For counting, with the topology of now; nobody else changes it."""
        return self._ledger

    @property
    def topology(self) -> Topology:
        """The GPUs of this node, as far as known."""
        return self._ledger.topology

    @property
    def unhealthy(self) -> frozenset[GpuUUID]:
        """GPUs that are given to nobody."""
        return self._ledger.closed

    def mark_unhealthy(self, gpus: Iterable[GpuUUID]) -> None:
        """These GPUs, and no others, are advertised as unhealthy, and given to nobody, from now."""
        self._ledger.closed = frozenset(gpus)

    async def adopt(self, topology: Topology) -> None:
        """From now on these are the GPUs of this node; raises IndistinctGPUs."""
        async with self._lock:
            self._ledger.adopt(topology)

    async def recover(self) -> None:
        """Both halves of a recovery, one after the other."""
        await self.take_up()
        await self.serve_again()

    async def take_up(self) -> None:
        """Know every promise in force, after a start. From now on the kubelet may ask."""
        async with self._lock:
            await recover(self._ledger, self._promises, self._around, self._eyes)
            self._foreign = self.foreign()

    async def serve_again(self) -> None:
        """Every promise that was taken up, and is in force still, one after another.

        The kubelet may ask meanwhile, and waits for one of them at most.
        """
        async with self._lock:
            await self._promises.tidy()
        for one in self._promises.live():
            async with self._lock:
                await self._promises.serve_again(one.allocation)
            await asyncio.sleep(0)

    async def kubelet_started(self) -> None:
        """Nothing of ours can be under admission now: pods listed already are not new."""
        async with self._lock:
            view = await self._eyes.look()
            self._admission = Admission(frozenset(pod.uid for pod in view or ()), None)

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
            self.calm.expect()
            open_ = await self._hear(resource, size)
            await self._promises.release(self._conflict(open_, available).over)
            question = Question(resource, size, tuple(available), tuple(must_include))
            offer = steer(self._ledger, self._promises.live(), open_, question)
            open_ = self._keep(replace(open_, awaiting=resource, plan=offer.plan))
            self._foresight.begin(self._foresee(open_, resource, offer.ids))
            self.calm.expect()
            return offer.ids

    async def allocate(self, resource: str, ids: Collection[str]) -> Answer | Refused:
        """Allocate: what the container gets; Refused is final for its pod.

        Raises UnknownDeviceID, JournalUnwritable, and what the virtual manager raises.
        """
        async with self._lock:
            self.calm.expect()
            try:
                return await self._allocate(resource, ids)
            finally:
                self.calm.over()

    async def _allocate(self, resource: str, ids: Collection[str]) -> Answer | Refused:
        foreseen = self._foresight.take(self._ground(), resource, ids)
        open_ = await self._transaction(resource, ids)
        if foreseen is not None:
            await self._promise(foreseen.decided, open_)
            return foreseen.answer
        decided = await self._decide(open_, resource, ids)
        if isinstance(decided, Refused) and await self._make_room(open_):
            decided = await self._decide(open_, resource, ids)
        other = apart(open_, self._call(resource, len(ids)))
        if isinstance(decided, Refused) and other:
            open_ = self._keep(other)
            decided = await self._decide(open_, resource, ids)
        if isinstance(decided, Refused):
            await self._abandon(open_)
            return decided
        directory = await self._promise(decided, open_)
        return self._answer(decided, open_, resource, directory)

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        """PreStartContainer: whose the IDs are is settled, and its limits are set.

        Safe to repeat. Raises NotSettled, after which the kubelet tries again.
        """
        view = await self._eyes.look()
        checkpoint, containers = await self._around.books.containers(
            resource, ids, view, self._promises.live(), admitting=self._admitting()
        )
        running = await self._settler.running(containers, view)
        async with self._lock:
            await self._settler.settle(containers, view, checkpoint, running)

    async def reconcile(self) -> tuple[AllocationID, ...]:
        """Look at everybody's books and act; returns what was released.

        Raises JournalUnwritable.
        """
        began = self._around.clock()
        look = await self._reconciler.look(began, await self._eyes.look())
        async with self._lock:
            self._promises.expected = self._open().allocation if self._admitting() else None
            released = await self._reconciler.act(look, self._under)
        await self._tell_of_devices()
        return released

    def reconcile_soon(self) -> None:
        """Something has changed: `reconcile_every` does not wait for its time."""
        self._wake.set()

    async def reconcile_every(self, period: float) -> None:
        """`reconcile` every `period` seconds and when woken, for as long as the task lives."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), period)
            self._wake.clear()
            try:
                await self.reconcile()
            except (GpuManagerError, OSError) as error:
                logger.warning("reconciling failed, will be tried again: %s", error)

    async def _tell_of_devices(self) -> None:
        """The kubelet hears of it when IDs that only pods had are released."""
        foreign = self.foreign()
        if foreign != self._foreign and self.on_devices_changed is not None:
            await self.on_devices_changed()
        self._foreign = foreign

    # Admission: who is asking.

    async def _hear(self, resource: str, size: int, *, again: bool = False) -> Transaction:
        self._view = await self._eyes.look()
        call = self._call(resource, size, again=again)
        before = self._admission.open
        live = self._promises.live()
        self._admission = hear(
            self._admission, call, self._view, {a.owner for a in live if a.owner}, self._fits
        )
        await self._promises.release(rejected(live, before, self._admission.open))
        return self._open()

    def _call(self, resource: str, size: int, *, again: bool = False) -> Call:
        nonce = AllocationID(secrets.token_hex(8))
        return Call(resource, size, self._around.clock(), nonce, again=again)

    def _open(self) -> Transaction:
        open_ = self._admission.open
        if open_ is None:  # pragma: no cover  # every call leaves one open
            raise AssertionError("no admission is open")
        return open_

    def _keep(self, open_: Transaction) -> Transaction:
        self._admission = replace(self._admission, open=open_)
        return open_

    def _fits(self, pod: PodView) -> bool:
        return could_hold(self._ledger, self._ledger.books(self._promises.live()), pod)

    async def _transaction(self, resource: str, ids: Collection[str]) -> Transaction:
        """The one whose Allocate has to come; or, where no IDs were preferred, what is heard."""
        open_ = self._admission.open
        if open_ and open_.awaiting == resource and open_.sizes.get(resource) == len(ids):
            return self._keep(replace(open_, awaiting=None))
        half = self._promises.journal.get(open_.allocation) if open_ else None
        again = half is not None and set(half.ids(resource)) == set(ids)
        return self._keep(replace(await self._hear(resource, len(ids), again=again), awaiting=None))

    def _admitting(self) -> bool:
        """True if a pod may be under admission still."""
        open_ = self._admission.open
        return open_ is not None and self._around.clock() - open_.began < PAIR_AGE

    def _under(self, allocation: Allocation) -> bool:
        """True if its pod may be under admission still."""
        return self._admitting() and allocation.admission == self._open().admission

    # Allocate: what is promised.

    async def _promise(self, decided: Allocation, open_: Transaction) -> Path | None:
        try:
            return await self._promises.promise(decided, self._blocks(decided, open_))
        except JournalUnwritable:
            raise
        except (GpuManagerError, OSError):
            await self._promises.release([decided.allocation])
            await self._abandon(open_)
            raise

    async def _foresee(
        self, open_: Transaction, resource: str, ids: tuple[str, ...]
    ) -> Foreseen | None:
        """What Allocate will be answered if it asks for what was offered."""
        async with self._lock:
            ground = self._ground()
            if ground[0] is not open_ or self._conflict(open_, ids) != UNDISPUTED:
                return None
            demand = self._demand(resource, ids)
            if isinstance(demand, Refused):
                return None
            decided = self._decided(open_, demand)
            if isinstance(decided, Refused):
                return None
            directory = await self._promises.foresee(decided, self._blocks(decided, open_))
            made = self._answer(decided, open_, resource, directory)
            return Foreseen(ground, resource, frozenset(ids), decided, made)

    def _ground(self) -> Ground:
        """What an Allocate now would look at."""
        promises, ledger = self._promises, self._ledger
        known = self._admission.open, self._view, promises.live(), promises.lingering
        return (*known, ledger.topology, ledger.closed)

    async def _decide(
        self, open_: Transaction, resource: str, ids: Collection[str]
    ) -> Allocation | Refused:
        if not ids:
            return Refused(f"no devices are asked for of {resource}")
        demand = self._demand(resource, ids)
        if isinstance(demand, Refused):
            return demand
        found = self._conflict(open_, ids)
        await self._promises.release(found.over)
        if found.refused:
            return found.refused
        self._promises.doubt(found.doubted)
        return self._decided(open_, demand)

    def _demand(self, resource: str, ids: Collection[str]) -> Demand | Refused:
        try:
            return Demand(resource, self._ledger.ids.known(ids), self._around.clock())
        except UnknownDeviceID as error:
            return Refused(str(error))

    def _decided(self, open_: Transaction, demand: Demand) -> Allocation | Refused:
        live, share_mode = self._promises.live(), self._around.share_mode
        return decide(self._ledger, live, open_, demand, share_mode=share_mode)

    def _conflict(self, open_: Transaction, ids: Collection[str]) -> Conflict:
        promises = self._promises
        return conflict(promises.live(), open_.admission, ids, self._view, promises.lingering)

    async def _make_room(self, open_: Transaction) -> bool:
        """Whether there is more room now."""
        live = self._promises.live()
        names = await given_to_nobody(live, open_.admission, self._view, self._around)
        await self._promises.release(names)
        return bool(names)

    async def _abandon(self, open_: Transaction) -> None:
        """The pod is refused for good: what else it was promised is free.

        Not where only the order of calls says that it was promised to the same pod.
        """
        if not open_.candidates:
            return
        await self._promises.release(
            a.allocation
            for a in self._promises.live()
            if a.admission == open_.admission and a.state is State.ANSWERED
        )
        self._admission = replace(self._admission, open=None)

    def _blocks(self, allocation: Allocation, open_: Transaction) -> int:
        """Memory blocks it has or will have, as far as known."""
        return allocation.blocks or (open_.request.blocks if open_.request else 0)

    def _answer(
        self, allocation: Allocation, open_: Transaction, resource: str, directory: Path | None
    ) -> Answer:
        if resource != VCORE:
            return Answer()
        return answer(
            allocation,
            tuple(gpu for gpu in self.topology.gpus if gpu.uuid in allocation.gpus),
            volumes=self._around.volumes,
            files=self._around.files,
            directory=directory,
            memory_blocks=self._blocks(allocation, open_) or (0 if open_.request else None),
        )

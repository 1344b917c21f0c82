"""The allocation service: answers the kubelet about devices, and keeps what it promised.

One admission at a time, under one lock. A promise is written to the journal before it is answered;
whose it is, is settled when its container starts. GetPreferredAllocation and Allocate look at
nothing but memory, the disk and the local kubelet's list of pods (decision 0097), because
the kubelet calls them without a timeout and stands still meanwhile; the container runtime is asked
only where a pod would be refused, for good, because of pods that look ended. What can be decided
without the world is decided in the pure modules beside this one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace

from gpumanager.deviceplugin.admission.decision import Refused
from gpumanager.deviceplugin.admission.granting import Granting
from gpumanager.deviceplugin.admission.hearing import Hearing
from gpumanager.deviceplugin.admission.steering import Question, steer
from gpumanager.deviceplugin.advertised import advertised
from gpumanager.deviceplugin.device_ids import Device
from gpumanager.deviceplugin.identity.settler import Settler
from gpumanager.deviceplugin.surroundings import Surroundings
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.journal import Journal
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.promises import Promises
from gpumanager.isolation.answer import Answer
from gpumanager.recovery.evidence import Eyes
from gpumanager.recovery.reconciler import Reconciler
from gpumanager.recovery.reconciliation import Disagreement
from gpumanager.recovery.recovery import recover
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
        self._eyes = Eyes(surroundings.pods)
        self._hearing = Hearing(self._ledger, self._promises, self._eyes, surroundings.elapsed)
        self._reconciler = Reconciler(self._ledger, self._promises, surroundings)
        self._settler = Settler(self._ledger, self._promises, surroundings)
        self._granting = Granting(self._ledger, self._promises, self._hearing, surroundings)
        self._wake = asyncio.Event()
        self._foreign: frozenset[str] = frozenset()
        self.on_devices_changed: Callable[[], Awaitable[None]] | None = None
        self._lock = asyncio.Lock()

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
            await self._hearing.begin_anew()

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
            open_ = await self._hearing.hear(resource, size)
            await self._promises.release(self._granting.conflict(open_, available).over)
            question = Question(resource, size, tuple(available), tuple(must_include))
            offer = steer(self._ledger, self._promises.live(), open_, question)
            self._hearing.keep(replace(open_, awaiting=resource, plan=offer.plan))
            return offer.ids

    async def allocate(self, resource: str, ids: Collection[str]) -> Answer | Refused:
        """Allocate: what the container gets; Refused is final for its pod.

        Raises UnknownDeviceID, JournalUnwritable, and what the virtual manager raises.
        """
        async with self._lock:
            return await self._granting.allocate(resource, ids)

    async def pre_start(self, resource: str, ids: Collection[str]) -> None:
        """PreStartContainer: whose the IDs are is settled, and its limits are set.

        Safe to repeat. Raises NotSettled, after which the kubelet tries again.
        """
        view = await self._eyes.look()
        checkpoint, containers = await self._around.books.containers(
            resource, ids, view, self._promises.live(), admitting=self._hearing.admitting
        )
        running = await self._settler.running(containers, view)
        async with self._lock:
            await self._settler.settle(containers, view, checkpoint, running)

    async def reconcile(self) -> tuple[AllocationID, ...]:
        """Look at everybody's books and act; returns what was released.

        Raises JournalUnwritable.
        """
        look = await self._reconciler.look(self._promises.live(), await self._eyes.look())
        async with self._lock:
            released = await self._reconciler.act(look, self._hearing.under)
        await self._tell_of_devices()
        return released

    def reconcile_soon(self) -> None:
        """Something has changed: `reconcile_every` does not wait for its time."""
        self._wake.set()

    async def reconcile_every(self, period: float) -> None:
        """`reconcile` every `period` seconds and when woken, for as long as the task lives."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._wake.wait()
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

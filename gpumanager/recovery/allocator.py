"""An allocator that recovers after a start, and reconciles for as long as it runs."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.device_ledger import all_ids
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import Topology
from gpumanager.ids import AllocationID
from gpumanager.recovery.reconciler import Reconciler
from gpumanager.recovery.reconciliation import Disagreement
from gpumanager.recovery.recovery import recover

logger = logging.getLogger(__name__)

LINGERING_SECONDS: Final = 1.0
"""Between passes while a container outlives its pod, whose GPU is free once it has ended."""


class NodeAllocator(Allocator):
    """Call `take_up` once, before registration, and `serve_again` as soon as possible after it."""

    def __init__(self, topology: Topology, deps: Dependencies) -> None:
        super().__init__(topology, deps)
        self._reconciler = Reconciler(self._ledger, self._store, deps)
        self._wake = asyncio.Event()
        self._foreign: frozenset[str] = frozenset()
        self.on_devices_changed: Callable[[], Awaitable[None]] | None = None

    @property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """What the last reconciliation found."""
        return self._reconciler.disagreements

    async def recover(self) -> None:
        """Both halves of a recovery, one after the other."""
        await self.take_up()
        await self.serve_again()

    async def take_up(self) -> None:
        """Recover the grants after a start. From now on the kubelet may call."""
        async with self._lock:
            await recover(self._ledger, self._store, self._deps, self._lister)
            self._close()
            self._foreign = self.foreign()

    async def serve_again(self) -> None:
        """Enforce the recovered grants of all interfaces again, one after another.

        The kubelet may call meanwhile, and waits for one of them at most.
        """
        async with self._lock:
            await self._store.tidy()
        for one in self._store.journal.live():
            async with self._lock:
                await self._store.serve_again(one.id)
            await asyncio.sleep(0)

    async def reconcile(self) -> tuple[AllocationID, ...]:
        """One pass of the reconciler; returns the released grants.

        Raises JournalUnwritable.
        """
        look = await self._reconciler.look(self._store.live(), await self._lister.list())
        async with self._lock:
            released = await self._reconciler.act(look, self._tracker.under)
        await self._tell_of_devices()
        return released

    def reconcile_soon(self) -> None:
        """Something has changed: `reconcile_every` runs its next pass now."""
        self._wake.set()

    async def reconcile_every(self, period: float) -> None:
        """`reconcile` every `period` seconds and when woken, for as long as the task lives."""
        while True:
            soon = min(period, LINGERING_SECONDS) if self._store.lingering else period
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(soon):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self.reconcile()
            except (GpuManagerError, OSError) as error:
                logger.warning("reconciliation failed, retrying: %s", error)

    async def _tell_of_devices(self) -> None:
        """Advertise anew when IDs that only pods had are released."""
        foreign = self.foreign()
        if foreign != self._foreign and self.on_devices_changed is not None:
            await self.on_devices_changed()
        self._foreign = foreign

    def foreign(self) -> frozenset[str]:
        """Device IDs that are advertised only because pods hold them."""
        held = (i for a in self._store.live() for i in all_ids(a))
        return frozenset(i for i in held if i not in self._ledger.ids)

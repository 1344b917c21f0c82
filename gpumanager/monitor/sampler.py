"""The one sampler: looks at everything once a period, however many ask.

The driver is asked in a thread; journal and books are read in the loop, which owns them, with a
breath for others in between.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from gpumanager.allocator.journal import Allocation, Journal
from gpumanager.allocator.live import Live
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import Topology
from gpumanager.monitor.driver import PatientDriver
from gpumanager.monitor.look import (
    Busy,
    Charged,
    Meters,
    charged,
    container_view,
    gpu_views,
    latest,
    same,
)
from gpumanager.monitor.ports import Sources, Told
from gpumanager.monitor.residents import by_holder, residents, seats
from gpumanager.monitor.snapshot import ContainerView, Resident, Snapshot
from gpumanager.virtual.processes import find
from gpumanager.virtual.usage import AllocationUsage
from gpumanager.virtual.values import AllocationID

log = logging.getLogger(__name__)

STATES: Final = ("answered", "settled", "released")
BREATH: Final = 16
"""Books read before others in the loop get their turn."""


class Sampler:
    """Keeps the newest snapshot, and what the next needs of it. sources: where it looks."""

    def __init__(
        self,
        sources: Sources,
        driver: PatientDriver,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sources = sources
        self._driver = driver
        self._clock = clock
        self._busy = Busy()
        self._charged: Charged = {}
        self._usages_before: Mapping[AllocationID, AllocationUsage] = {}
        self._live = Live.of(Journal())
        self._known: Mapping[AllocationID, ContainerView] = {}
        self._topology: Topology | None = None
        self._complained = False
        self.snapshot: Snapshot | None = None

    async def sample_every(
        self, seconds: float, then: Callable[[Snapshot], Awaitable[None]]
    ) -> None:
        """Until cancelled. then: what is done with each."""
        while True:
            began = self._clock()
            try:
                await then(await self.sample())
            except Exception:
                if not self._complained:
                    log.exception("a look at this node failed; what was seen before stands")
                self._complained = True
            else:
                self._complained = False
            await asyncio.sleep(max(0.0, began + seconds - self._clock()))

    async def sample(self) -> Snapshot:
        told = await self._driver.ask()
        live = self._live = self._live.follow(self.sources.journal())
        usages = await self._usages(live)
        now = self._clock()
        present = self._residents(live, usages, told)
        if told is not None:
            self._busy = self._busy.after(told.busy, round(now * 1e9))
        seconds = now - self.snapshot.at if self.snapshot else 0.0
        indexed = {one.allocation: one for one in usages}
        before = self._usages_before
        meters = Meters(indexed, by_holder(present), self._busy, self._charged, seconds, before)
        self._charged, self._usages_before = charged(usages), indexed
        views = await self._views(live, meters)
        self.snapshot = self._snapshot(now, live, told, present, views)
        return self.snapshot

    async def _views(self, live: Iterable[Allocation], meters: Meters) -> tuple[ContainerView, ...]:
        """Those that did nothing look as they did."""
        topology = self.sources.topology()
        known = self._known if topology is self._topology else {}
        found: dict[AllocationID, ContainerView] = {}
        for number, one in enumerate(live):
            if number % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            view = known.get(one.allocation)
            if view is None or not same(view, one, meters):
                view = container_view(topology, one, meters)
            if view is not None:
                found[one.allocation] = view
        self._known, self._topology = found, topology
        return latest(found.values())

    def _snapshot(
        self,
        now: float,
        live: tuple[Allocation, ...],
        told: Told | None,
        present: tuple[Resident, ...],
        views: tuple[ContainerView, ...],
    ) -> Snapshot:
        sources = self.sources
        return Snapshot(
            at=now,
            node=sources.node,
            answered=told is not None,
            gpus=tuple(gpu_views(sources.ledger(), live, told, sources.fitness())),
            containers=views,
            residents=present,
            journal=_states(sources.journal()),
            journal_bytes=sources.journal_bytes(),
            registered=sources.registered(),
            mismatched=sources.mismatched(),
            disagreements=sources.disagreements(),
        )

    async def _usages(self, live: Iterable[Allocation]) -> tuple[AllocationUsage, ...]:
        """Books that cannot be read now say what they said before, so that no counter falls back.

        Where they were never read the container is shown without.
        """
        found: list[AllocationUsage] = []
        for number, one in enumerate(live):
            if number % BREATH == BREATH - 1:
                await asyncio.sleep(0)
            if not one.whole and one.core_ids:
                try:
                    found.append(self.sources.books.usage(one.allocation))
                except (GpuManagerError, OSError):
                    found.extend(filter(None, [self._usages_before.get(one.allocation)]))
        return tuple(found)

    def _residents(
        self, live: tuple[Allocation, ...], usages: Iterable[AllocationUsage], told: Told | None
    ) -> tuple[Resident, ...]:
        if told is None:
            return ()
        gpus, of = self.sources.topology().gpus, self.sources.residents.of
        return tuple(residents(gpus, told.held, seats(usages), live, find=find, of=of))


def _states(journal: Journal) -> dict[str, int]:
    every = journal.allocations.values()
    found = Counter("released" if one.released else one.state.value for one in every)
    return {state: found[state] for state in STATES}

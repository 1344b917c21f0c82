"""Reads the meters of all allocations, lets the shares be decided, and writes them back.

What is written is a lease: whoever reads it after its end holds to the plain guarantee. So the
generosity of a manager ends with it, and so do its corrections.
"""

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from gpumanager.compute.shares import Shares
from gpumanager.compute.values import SECOND, Holder, Reading, ShareLease
from gpumanager.gpu.usage.samples import UtilizationByGpu
from gpumanager.gpu.values import GpuUUID
from gpumanager.virtual.allocation import ServedAllocation
from gpumanager.virtual.values import AllocationID

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 0.1
POLLS: Final = 4
"""Polls of the lenders' meters in the time of one tick, itself included."""
LEASE_NS: Final = SECOND * 3 // 2
"""Fifteen looks: a manager that is slow for a moment takes nothing back."""


SLICE_US: Final = 1024
"""A process's time slice: the default of a channel group in NVIDIA's open kernel modules."""

SWITCH_US: Final = 50
"""The default of --gpu-switch-cost."""


class Took:
    """How much of GPUs' time some containers take, by their meters, on the average of a second."""

    def __init__(self) -> None:
        self._at = 0
        self._known: dict[Holder, tuple[int, float]] = {}
        """Of each, what was charged by the last look, and the part."""

    def look(self, now_ns: int, readings: Iterable[Reading]) -> Mapping[GpuUUID, float]:
        """By bare UUIDs; none takes more than it is guaranteed."""
        took: dict[GpuUUID, float] = defaultdict(float)
        known, self._known = self._known, {}
        weight = min((now_ns - self._at) / SECOND, 1.0)
        for one in readings:
            charged, part = known.get(one.holder, (one.charged_ns, 0.0))
            lately = (one.charged_ns - charged) / max(now_ns - self._at, 1)
            part += (lately - part) * weight
            self._known[one.holder] = one.charged_ns, part
            took[one.gpu] += min(part, one.guarantee)
        self._at = now_ns
        return took


def _gpus(served: Iterable[ServedAllocation]) -> frozenset[GpuUUID]:
    """Those of which processes share the time."""
    return frozenset[GpuUUID]().union(*(one.limited_gpus for one in served if one.has_processes))


class Sharing:
    """Keeps what the decisions need to remember. switch_us: as --gpu-switch-cost. pauses: whether
    containers that do not hold to their limiters are paused."""

    def __init__(self, switch_us: int = SWITCH_US, *, pauses: bool = False) -> None:
        self._pauses = pauses
        self._shares = Shares(switching=switch_us / (SLICE_US + switch_us))
        self._lenders: frozenset[AllocationID] = frozenset()
        self._took = Took()
        self._by_cost: frozenset[AllocationID] = frozenset()
        self._mixed: frozenset[GpuUUID] = frozenset()
        """GPUs on which containers take turns and others do not."""
        self._noticed: set[Holder] = set()
        self._said_overdrawn: frozenset[Holder] = frozenset()
        self.overdrawn: frozenset[AllocationID] = frozenset()
        """Containers that do not hold to their limiters, at the last look."""
        self.paused: frozenset[AllocationID] = frozenset()
        """Those of them that are to wait until the next look."""

    def tick(
        self,
        now_ns: int,
        by_cost: Iterable[ServedAllocation],
        answers: UtilizationByGpu,
        by_turns: Collection[ServedAllocation] = (),
    ) -> Mapping[GpuUUID, float]:
        """One look. answers: of the driver, since the last one, by bare UUIDs. by_turns: containers
        that are granted nothing here, but are the neighbours of those by cost. Returns the part of
        each GPU that both share which those by cost take.
        """
        allocations = {one.allocation: one for one in by_cost}
        self._by_cost = frozenset(allocations)
        shared = _gpus(allocations.values()) if by_turns else frozenset[GpuUUID]()
        self._mixed = shared and shared & _gpus(by_turns)
        readings = self._readings(allocations.values(), now_ns)
        took = self._took.look(now_ns, [one for one in readings if one.gpu in self._mixed])
        if self._mixed:
            beside = self._readings(by_turns, now_ns)
            readings += [one for one in beside if one.gpu in self._mixed]
        self._grant(self._shares.tick(now_ns, readings, answers), allocations, now_ns)
        self._lenders = frozenset(AllocationID(name) for name, _ in self._shares.lenders)
        self._report()
        return took

    def poll(self, now_ns: int, served: Mapping[AllocationID, ServedAllocation]) -> None:
        """Between two ticks: give back at once what a lender wants again."""
        lenders = (served[name] for name in self._lenders if name in served)
        active = self._shares.active(reading for one in lenders for reading in one.readings(now_ns))
        if not active:
            return
        touched = [one for one in self._readings(served.values(), now_ns) if one.gpu in active]
        self._grant(self._shares.poll(now_ns, touched), served, now_ns)

    def _readings(self, served: Iterable[ServedAllocation], now_ns: int) -> list[Reading]:
        """Beside containers that take turns, those by cost are lent nothing."""
        return [
            replace(reading, ceiling=reading.guarantee)
            if reading.gpu in self._mixed and one.allocation in self._by_cost
            else reading
            for one in served
            for reading in one.readings(now_ns)
        ]

    def _report(self) -> None:
        """Once each: containers that the audit or the second account noticed."""
        collected = {who for who in self._shares.collected if who[0] in self._by_cost}
        for holder in sorted(collected - self._noticed):
            log.warning(
                "allocation %s: NVML shows that it uses more of its GPU %d than its shim reports: "
                "the excess over a tenth of the time is charged too",
                *holder,
            )
        self._noticed |= collected
        known = self._shares.overdrafts.items()
        overdrafts = [(who, one) for who, one in known if who[0] in self._by_cost]
        overdrawn = {who for who, one in overdrafts if (one.held if self._pauses else one.gross)}
        paused = {who for who, one in overdrafts if self._pauses and one.paused}
        self.overdrawn = frozenset(AllocationID(name) for name, _ in overdrawn)
        self.paused = frozenset(AllocationID(name) for name, _ in paused)
        for holder in sorted(overdrawn - self._said_overdrawn):
            log.warning(
                "allocation %s launches on its GPU %d although its GPU time is used up: it "
                "bypasses its limiter, %s",
                *holder,
                "and the agent pauses it whenever it has had more than it was granted"
                if self._pauses
                else "and other containers may get less than they were guaranteed",
            )
        self._said_overdrawn |= overdrawn

    @property
    def lending(self) -> bool:
        """Whether polling is worthwhile."""
        return bool(self._lenders)

    def _grant(
        self,
        grants: Mapping[Holder, ShareLease],
        allocations: Mapping[AllocationID, ServedAllocation],
        now_ns: int,
    ) -> None:
        for (name, device), grant in grants.items():
            if name in self._by_cost:
                allocations[AllocationID(name)].grant(device, grant, now_ns + LEASE_NS)

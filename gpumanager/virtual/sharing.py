"""Reads the meters of all allocations, lets the shares be decided, and writes them back.

What is written is a lease: whoever reads it after its end holds to the plain guarantee. So the
generosity of a manager ends with it, and so do its corrections.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from gpumanager.compute.shares import Shares
from gpumanager.compute.values import SECOND, Holder, ShareLease
from gpumanager.gpu.usage.samples import UtilizationByGpu
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


class Sharing:
    """Keeps what the decisions need to remember. switch_us: as --gpu-switch-cost. pauses: whether
    containers that do not hold to their limiters are paused. leases: whether they get more than
    their guarantees; not beside those that take turns, whose time is not known here."""

    def __init__(
        self, switch_us: int = SWITCH_US, *, pauses: bool = False, leases: bool = True
    ) -> None:
        self._pauses = pauses
        self._leases = leases
        self._shares = Shares(switching=switch_us / (SLICE_US + switch_us))
        self._lenders: frozenset[AllocationID] = frozenset()
        self._noticed: set[Holder] = set()
        self._said_overdrawn: frozenset[Holder] = frozenset()
        self.overdrawn: frozenset[AllocationID] = frozenset()
        """Containers that do not hold to their limiters, at the last look."""
        self.paused: Mapping[AllocationID, float] = {}
        """Those of them that are to wait until the next look: by how many ns each is ahead."""

    def tick(
        self, now_ns: int, served: Iterable[ServedAllocation], answers: UtilizationByGpu
    ) -> None:
        """One look. answers: of the driver, since the last one, by bare UUIDs."""
        allocations = {one.allocation: one for one in served}
        readings = [reading for one in allocations.values() for reading in one.readings(now_ns)]
        self._grant(self._shares.tick(now_ns, readings, answers), allocations, now_ns)
        self._lenders = frozenset(AllocationID(name) for name, _ in self._shares.lenders)
        self._report()

    def poll(self, now_ns: int, served: Mapping[AllocationID, ServedAllocation]) -> None:
        """Between two ticks: give back at once what a lender wants again."""
        lenders = (served[name] for name in self._lenders if name in served)
        active = self._shares.active(reading for one in lenders for reading in one.readings(now_ns))
        if not active:
            return
        readings = [one for each in served.values() for one in each.readings(now_ns)]
        touched = [one for one in readings if one.gpu in active]
        self._grant(self._shares.poll(now_ns, touched), served, now_ns)

    def _report(self) -> None:
        """Once each: containers that the audit or the second account noticed."""
        for holder in sorted(self._shares.collected.keys() - self._noticed):
            log.warning(
                "allocation %s: NVML shows that it uses more of its GPU %d than its shim reports: "
                "the excess over a tenth of the time is charged too",
                *holder,
            )
        self._noticed |= self._shares.collected.keys()
        overdrafts = self._shares.overdrafts.items()
        overdrawn = {who for who, one in overdrafts if (one.held if self._pauses else one.gross)}
        paused = sorted((one.excess, who) for who, one in overdrafts if self._pauses and one.paused)
        self.overdrawn = frozenset(AllocationID(name) for name, _ in overdrawn)
        self.paused = {AllocationID(name): excess for excess, (name, _) in paused}
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
        return self._leases and bool(self._lenders)

    def _grant(
        self,
        grants: Mapping[Holder, ShareLease],
        allocations: Mapping[AllocationID, ServedAllocation],
        now_ns: int,
    ) -> None:
        for (name, device), grant in grants.items() if self._leases else ():
            allocations[AllocationID(name)].grant(device, grant, now_ns + LEASE_NS)

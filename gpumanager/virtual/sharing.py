"""Reads the meters of all allocations, lets the shares be decided, and writes them back.

What is written is a lease: whoever reads it after its end holds to the plain promise. So the
generosity of a manager ends with it, and so do its corrections.
"""

from collections.abc import Iterable
from typing import Final

from gpumanager.compute.shares import Shares
from gpumanager.compute.values import SECOND
from gpumanager.gpu.samples import Answers
from gpumanager.virtual.allocation import ServedAllocation
from gpumanager.virtual.values import AllocationID

TICK_SECONDS: Final = 0.1
LEASE_NS: Final = SECOND * 3 // 2
"""Fifteen looks: a manager that is slow for a moment takes nothing back."""


class Sharing:
    """Keeps what the decisions need to remember."""

    def __init__(self) -> None:
        self._shares = Shares()

    def tick(self, now_ns: int, served: Iterable[ServedAllocation], answers: Answers) -> None:
        """One look. answers: of the driver, since the last one, by bare UUIDs."""
        allocations = {one.allocation: one for one in served}
        readings = [reading for one in allocations.values() for reading in one.readings()]
        for (name, device), grant in self._shares.tick(now_ns, readings, answers).items():
            allocations[AllocationID(name)].grant(device, grant, now_ns + LEASE_NS)

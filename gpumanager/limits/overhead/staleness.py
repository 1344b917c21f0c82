"""Whether what was measured of an allocation's processes may be stale.

What the driver takes by itself changes with calls that move memory, which processes count
(`activity`), with launches, since local memory grows when a kernel needs more of it, and with the
death of a process that shared memory. Where nothing of this has happened since the last
measurement, another one would find the same, so NVML is not asked.
Launches alone are no haste: most of them change nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from gpumanager.ids import AllocationID
from gpumanager.limits.overhead.driver_overhead import OverheadMark
from gpumanager.limits.processes import Process

LAUNCHED_SECONDS: Final = 5.0
"""After a measurement comes another so much later where there was nothing but launches."""


class OverheadReading(Protocol):
    """An allocation. exited: processes that have died and stay charged until it is measured."""

    @property
    def launches(self) -> int: ...
    @property
    def exited(self) -> Collection[Process]: ...


@dataclass(frozen=True, slots=True)
class OverheadVersion:
    """Of an allocation's memory. at: seconds, when it was found. activities: of its processes."""

    at: float
    activities: Mapping[Process, int | None]
    launches: int

    def is_stale(self, now: "OverheadVersion") -> bool:
        launched = now.launches != self.launches and now.at - self.at >= LAUNCHED_SECONDS
        return launched or any(
            self.activities.get(process) != activity for process, activity in now.activities.items()
        )


class Staleness:
    """Of all allocations."""

    def __init__(self) -> None:
        self._measured: dict[AllocationID, OverheadVersion] = {}

    def stale(
        self,
        now: float,
        served: Mapping[AllocationID, OverheadReading],
        marks: Mapping[AllocationID, Mapping[Process, OverheadMark]],
    ) -> Mapping[AllocationID, OverheadVersion]:
        """Return those to be measured, as they are now. marks: of the processes that can be."""
        self._measured = {name: one for name, one in self._measured.items() if name in served}
        versions = {
            name: OverheadVersion(
                now, {who: mark.activity for who, mark in own.items()}, served[name].launches
            )
            for name, own in marks.items()
            if own
        }
        return {
            name: version
            for name, version in versions.items()
            if name not in self._measured
            or served[name].exited
            or self._measured[name].is_stale(version)
        }

    def measured(self, versions: Mapping[AllocationID, OverheadVersion]) -> None:
        """A measurement has begun after they were found, and has come to its end."""
        self._measured |= versions

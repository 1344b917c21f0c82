"""The tenants of a harness, and the results of a run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpumanager.errors import GpuManagerError


class HarnessFailed(GpuManagerError):
    """A program of a stage did not do its part."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One container. workload: text for cuda-work, or the words of another of our programs.

    cores, ceiling: percent of the GPU guaranteed, and at most (None: only the guarantee). start:
    seconds after the stage's. processes: that each do the workload. changes: guarantees made later,
    by the second. container: shared by the tenants that name it, whose guarantees are alike; by
    default its own. older: it began under an agent without turns, and no words are mounted in it.
    """

    name: str
    cores: int
    workload: str
    ceiling: int | None = None
    start: float = 0.0
    processes: int = 1
    changes: tuple[tuple[float, int], ...] = ()
    container: str | None = None
    older: bool = False


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """What happened.

    busy: per tenant, GPU seconds received in each interval, as the simulated GPUs account them; of
    several GPUs the sum. lost: those that went into switches between processes.
    reports: what its programs told; of several the sums, and of what is no sum the most, and
    all of them under `each`.
    """

    seconds: float
    interval: float
    busy: Mapping[str, tuple[float, ...]]
    reports: Mapping[str, Mapping[str, Any]]
    lost: tuple[float, ...]

    def share(self, name: str, since: float = 0.0, until: float | None = None) -> float:
        """Return the part of the GPU's time that a tenant got, over the intervals between two
        moments."""
        first = round(since / self.interval)
        last = round((self.seconds if until is None else until) / self.interval)
        return sum(self.busy[name][first:last]) / ((last - first) * self.interval)

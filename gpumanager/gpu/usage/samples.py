"""How busy each process kept a GPU lately, as its driver samples it. Values only.

A driver divides time into periods of its own, a sixth of a second to a second long, and tells at
the end of each, in whole percents, for how much of it every process had a kernel running. A process
that had none is not listed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpumanager.gpu.values import GpuUUID


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """One process in one period. ended_ns: of the period, CLOCK_MONOTONIC. percent: 0 to 100."""

    pid: int
    ended_ns: int
    percent: int


@dataclass(frozen=True, slots=True)
class GpuUtilization:
    """What one GPU answered. asked_ns: when, CLOCK_MONOTONIC.

    samples: those that are newer than what was told before; None of a GPU that never tells, as an
    instance of a split one (MIG), or one with an old driver. busy: percent of the last period in
    which anybody had a kernel running, also one that has ended since; None if that is not told.
    """

    asked_ns: int
    samples: tuple[ProcessSample, ...] | None
    busy: int | None = None


UtilizationByGpu = Mapping[GpuUUID, GpuUtilization]
"""Of every GPU that could be asked; one that is missing may be lost, or answer the next time."""


def joined_samples(answers: Iterable[UtilizationByGpu]) -> UtilizationByGpu:
    """Join answers into one: the newest of each GPU, with the samples of all."""
    found: dict[GpuUUID, GpuUtilization] = {}
    for answer in answers:
        for gpu, later in answer.items():
            earlier = found.get(gpu)
            if earlier is None or earlier.samples is None or later.samples is None:
                found[gpu] = later
            else:
                found[gpu] = replace(later, samples=earlier.samples + later.samples)
    return found

"""Processes that use a GPU outside of turns: until when they count, and how much they have.

A process is foreign while NVML samples show that it used the GPU and no container that takes turns
has it: a display server, a container with a shim that has not heard of turns, a program that goes
past its shim. A process that is listed without time does not count, and neither does one that is
gone: else a container would get back the time of its own processes that live for a moment.

Pure: ns of CLOCK_MONOTONIC.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.audit import LONGEST_NS, SECOND
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample

LEAST_PERCENT: Final = 1

LATELY_NS: Final = SECOND * 3 // 2
"""A second, and the time to the next question: sample periods last a second at most."""

MEAN_NS: Final = 10 * SECOND
"""Of a mean, a third is remembered after as long: 50 draws."""


def foreign(samples: Iterable[ProcessSample], now: int, inside: Collection[int]) -> dict[int, int]:
    """Pids outside of turns that used the GPU lately → when they count no longer. inside: the pids
    of the containers that take turns."""
    ends: dict[int, int] = {}
    for one in samples:
        until = one.ended_ns + LATELY_NS
        if one.percent >= LEAST_PERCENT and one.pid not in inside and until > now:
            ends[one.pid] = max(until, ends.get(one.pid, 0))
    return ends


@dataclass(slots=True)
class Mean:
    """Of parts of the time, over the last seconds; from its first second on it is not too low."""

    _sum: float = 0.0
    _weight: float = 0.0

    def enter(self, span: int, part: float) -> None:
        keep = math.exp(-max(0, span) / MEAN_NS)
        self._sum = self._sum * keep + part * (1 - keep)
        self._weight = self._weight * keep + (1 - keep)

    @property
    def value(self) -> float:
        return self._sum / self._weight if self._weight else 0.0


@dataclass(slots=True)
class DrawnShare:
    """The part of a GPU's time that some processes have. One sample says that one had everything,
    so that it is a mean."""

    asked: int
    mean: Mean = field(default_factory=Mean)

    def enter(self, answer: GpuUtilization, pids: Collection[int]) -> None:
        """pids: theirs, now."""
        percents = {one.pid: one.percent for one in answer.samples or ()}
        span = answer.asked_ns - self.asked
        if not any(percents.values()) and span < LONGEST_NS:
            return  # no sample was taken since; the next one is of this time, too
        part = sum(percent for pid, percent in percents.items() if pid in pids)
        self.mean.enter(span, part / max(100, sum(percents.values())))
        self.asked = answer.asked_ns

"""GPU time of processes that belong to no container, where a sample names one process.

One sample says that such a process had everything, or nothing. So what they have is a mean over the
last seconds: of each answer, the part of the time that it gives to processes that nobody knows. An
answer that tells of more than the whole time, because it gives to each process what it had of its
own samples, is scaled down to it.
"""

import math
from typing import Final

from gpumanager.compute.periods import LONGEST_NS
from gpumanager.compute.values import SECOND
from gpumanager.gpu.samples import GpuUtilization

FORGETTING_NS: Final = 5 * SECOND
"""Of what was seen, a third is remembered after as long."""

LEAST: Final = 0.005
"""Less is nothing."""

FORGOTTEN_NS: Final = 10 * SECOND
"""Where no answer has come for as long, nothing is known."""


class UnknownProcesses:
    """Of one GPU. share: of its time, that processes of no container have. count: how many."""

    def __init__(self) -> None:
        self.share = 0.0
        self._asked: int | None = None
        self._seen: dict[int, int] = {}

    @property
    def count(self) -> int:
        return len(self._seen)

    def enter(self, answer: GpuUtilization, known: frozenset[int]) -> float:
        """An answer, and the pids of all containers. Returns the share."""
        now, before = answer.asked_ns, self._asked
        percents = {one.pid: one.percent for one in answer.samples or () if one.percent > 0}
        if before is not None and not percents and now - before < LONGEST_NS:
            return self.share  # no sample was taken since; the next one is of this time, too
        self._asked = now
        keep = 0.0 if before is None else math.exp((before - now) / FORGETTING_NS)
        unknown = {pid: percent for pid, percent in percents.items() if pid not in known}
        part = 0.0 if before is None else sum(unknown.values()) / max(100, sum(percents.values()))
        share = self.share * keep + part * (1 - keep)
        self.share = share if share >= LEAST else 0.0
        self._seen |= dict.fromkeys(unknown, now)
        self._seen = {pid: at for pid, at in self._seen.items() if at > now - FORGETTING_NS}
        return self.share

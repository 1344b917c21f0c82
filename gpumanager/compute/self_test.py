"""Whether a driver's samples tell of every process, tested on what they say.

NVML's per-process utilisation can mean two things. Its documentation suggests for how much of a
period each process used the GPU, which is what `gpumanager.compute.correction` needs. Real drivers
are reported to tell how busy the GPU was and to name one process that used it then, so that two
processes never have the same stamp. Read as the first, the second says that the named process had
everything: corrections by that pulled shares apart by eight points.

So samples are believed on a GPU only if two processes were listed with one stamp in most of the
last periods in which two containers were charged.
"""

from collections import defaultdict, deque
from typing import Final

from gpumanager.gpu.samples import GpuUtilization

PERIODS: Final = 20
"""In which at least two containers used the GPU, before samples are believed."""

BUSY: Final = 0.05
"""A share that shows in a period, in whole percents."""


class SelfTest:
    """Of one GPU. passed: samples tell of every process."""

    def __init__(self, *, passed: bool = False) -> None:
        self.passed = passed
        self._last: deque[bool] = deque([True] * PERIODS if passed else [], PERIODS)

    def enter(self, answer: GpuUtilization, containers: int) -> bool:
        """An answer, and how many containers use the GPU; whether it changes what is believed."""
        if containers < 2:  # noqa: PLR2004 - one alone tells nothing
            return False
        pids: defaultdict[int, set[int]] = defaultdict(set)
        for sample in answer.samples or ():
            if sample.percent > 0:
                pids[sample.ended_ns].add(sample.pid)
        self._last.extend(len(pids[end]) > 1 for end in sorted(pids))
        before = self.passed
        self.passed = len(self._last) == PERIODS and 2 * sum(self._last) > PERIODS
        return self.passed != before

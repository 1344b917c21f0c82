"""A driver's samples as periods of time, each with what every process used of it.

All processes of a GPU are sampled together, so that who is not listed in a period that somebody is
listed in was idle. How long a period is no driver says: it is learnt, as the least that ever lay
between two. A longer gap was idle if we looked often enough to have seen a period in it; if not,
nothing is known of it.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from gpumanager.compute.values import SECOND
from gpumanager.gpu.samples import GpuUtilization, ProcessSample

SAME_NS: Final = SECOND // 50
"""Samples that lie closer than this belong to one period."""

LONGEST_NS: Final = SECOND * 12 // 10
"""No driver has longer periods: they last a second at most."""

HELD: Final = 16
KNOWN_AFTER: Final = 3
"""Gaps that must have been seen before their least is taken for the length."""


@dataclass(frozen=True, slots=True)
class Period:
    """From begin to end nobody used the GPU but in the last `length`, and then by `percents`."""

    begin: int
    end: int
    length: int
    percents: Mapping[int, int]
    """Of each pid that is listed."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A period that ended after `before`, as an answer told, `since_asked` after the last one."""

    before: int | None
    end: int
    percents: Mapping[int, int]
    since_asked: int


class Periods:
    """Of one GPU."""

    def __init__(self) -> None:
        self._asked: int | None = None
        self._ended: int | None = None
        self._gaps = 0
        self._length = LONGEST_NS
        self._held: deque[_Ended] = deque(maxlen=HELD)

    def enter(self, answer: GpuUtilization) -> list[Period]:
        """The periods that have ended since. The first wait until their length is known."""
        since_asked = answer.asked_ns - self._asked if self._asked is not None else LONGEST_NS
        self._asked = answer.asked_ns
        for end, percents in _grouped(answer.samples or (), after=self._ended):
            self._note(end)
            self._held.append(_Ended(self._ended, end, percents, since_asked))
            self._ended = end
        if self._gaps < KNOWN_AFTER:
            return []
        found = [self._period(one) for one in self._held]
        self._held.clear()
        return [period for period in found if period is not None]

    @property
    def length(self) -> int:
        """No period is longer, as far as is known."""
        return self._length if self._gaps >= KNOWN_AFTER else LONGEST_NS

    def _note(self, end: int) -> None:
        if self._ended is not None and end - self._ended <= LONGEST_NS:
            self._gaps += 1
            self._length = min(self._length, end - self._ended)

    def _period(self, one: "_Ended") -> Period | None:
        """None where a period in between may have been missed."""
        alone = Period(one.end - self._length, one.end, self._length, one.percents)
        if one.before is None:
            return alone
        gap = one.end - one.before
        if gap < self._length * 5 // 4:
            return Period(one.before, one.end, gap, one.percents)
        if one.since_asked > self._length:
            return None
        return replace(alone, begin=one.before)


def _grouped(
    samples: tuple[ProcessSample, ...], after: int | None
) -> Iterator[tuple[int, Mapping[int, int]]]:
    """When each period ended, and what it says of whom; none that was seen already."""
    percents: defaultdict[int, dict[int, int]] = defaultdict(dict)
    end = after
    for sample in sorted(samples, key=lambda sample: sample.ended_ns):
        if end is None or sample.ended_ns > end + SAME_NS:
            end = sample.ended_ns
        if end != after:
            percents[end][sample.pid] = sample.percent
    yield from percents.items()

"""A driver's samples as periods of time, each with what every process used of it.

All processes of a GPU are sampled together, so that who is not listed in a period that somebody is
listed in was idle. How long a period is no driver says: it is learnt, as the least that ever lay
between two. A longer gap was idle if we looked often enough to have seen a period in it; if not,
nothing is known of it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from gpumanager.compute.values import SECOND
from gpumanager.gpu.samples import Answer, Sample

SAME_NS: Final = SECOND // 50
"""Samples that lie closer than this belong to one period."""

LONGEST_NS: Final = SECOND * 12 // 10
"""No driver has longer periods: they last a second at most."""

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


class Periods:
    """Of one GPU."""

    def __init__(self) -> None:
        self._asked: int | None = None
        self._ended: int | None = None
        self._gaps = 0
        self._length = LONGEST_NS

    def enter(self, answer: Answer) -> list[Period]:
        """The periods that have ended since, as far as they are known."""
        since_asked = answer.asked_ns - self._asked if self._asked is not None else LONGEST_NS
        self._asked = answer.asked_ns
        fresh = _grouped(answer.samples or (), after=self._ended)
        found = (self._close(end, percents, since_asked) for end, percents in fresh)
        return [period for period in found if period is not None]

    def _close(self, end: int, percents: Mapping[int, int], since_asked: int) -> Period | None:
        before, self._ended = self._ended, end
        if before is None:
            return None
        gap = end - before
        if gap <= LONGEST_NS:
            self._gaps += 1
            self._length = min(self._length, gap)
        one = gap < self._length * 5 // 4
        missed = not one and since_asked > self._length
        if self._gaps < KNOWN_AFTER or missed:
            return None
        begin = before if gap <= 2 * SECOND else end - self._length
        return Period(begin, end, gap if one else self._length, percents)


def _grouped(
    samples: tuple[Sample, ...], after: int | None
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

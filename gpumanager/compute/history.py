"""What one meter said lately, to ask for any stretch of it.

Meters grow while nobody looks: between two looks they are taken to have grown evenly.
"""

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.values import SECOND, Reading

KEPT_NS: Final = 3 * SECOND


@dataclass(frozen=True, slots=True)
class Mark:
    """One look. waits: a number that grows with each launch that was made to wait."""

    time: int
    charged: int
    waits: int
    launches: int


@dataclass(slots=True)
class History:
    """Of one container on one GPU, oldest look first."""

    marks: deque[Mark] = field(default_factory=deque)

    def enter(self, now: int, reading: Reading) -> None:
        waits = reading.throttled + reading.throttled_ns
        mark = Mark(now, reading.charged_ns, waits, reading.launches)
        if self.marks and (mark.waits < self.marks[-1].waits or now < self.marks[-1].time):
            self.marks.clear()  # begun anew
        if self.marks and now == self.marks[-1].time:
            self.marks.pop()
        self.marks.append(mark)
        while len(self.marks) > 2 and self.marks[1].time <= now - KEPT_NS:  # noqa: PLR2004
            self.marks.popleft()

    def reaches(self, time: int) -> bool:
        """Whether anything is known of this moment."""
        return bool(self.marks) and self.marks[0].time <= time <= self.marks[-1].time

    def charged(self, begin: int, end: int) -> float:
        """GPU time charged in between, in ns; a correction may make it less than nothing."""
        return self._charged_at(end) - self._charged_at(begin)

    def waited(self, begin: int, end: int) -> bool:
        """Whether a launch has waited, from the look before `begin` to the one at `end`."""
        marks = self.marks
        first, last = self._place(begin), self._place(end)
        return bool(marks) and marks[last].waits > marks[max(0, first - 1)].waits

    def share(self, now: int, span: int) -> float:
        """The share of the last `span` that was charged for; of less, while less is known."""
        if not self.marks:
            return 0.0
        begin = max(self.marks[0].time, now - span)
        return max(0.0, self.charged(begin, now)) / (now - begin) if now > begin else 0.0

    def cost(self) -> float:
        """What a launch costs lately, in ns, as charged: the most between any two looks."""
        steps = zip(self.marks, list(self.marks)[1:], strict=False)
        return max(
            (
                (after.charged - before.charged) / (after.launches - before.launches)
                for before, after in steps
                if after.launches > before.launches
            ),
            default=0.0,
        )

    def _place(self, time: int) -> int:
        """Of the first look at or after a moment; of the last one if there is none."""
        found = bisect_left(self.marks, time, key=lambda mark: mark.time)
        return min(found, len(self.marks) - 1)

    def _charged_at(self, time: int) -> float:
        place = self._place(time)
        after = self.marks[place]
        before = self.marks[place - 1] if place > 0 else after
        if time >= after.time or after.time == before.time or time <= before.time:
            return float(after.charged if time >= after.time else before.charged)
        part = (time - before.time) / (after.time - before.time)
        return before.charged + part * (after.charged - before.charged)

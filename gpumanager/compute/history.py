"""What one meter said at the last looks, to ask for the stretch up to now.

Meters grow while nobody looks: between two looks they are taken to have grown evenly. A node has
hundreds of histories of a few entries each, so they are lists: a deque is 64 places from the start.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from gpumanager.compute.values import SECOND

KEPT_NS: Final = SECOND

LOOK_NS: Final = SECOND // 10
"""What is charged in less time than this tells of a burst, not of a share."""

STEADY: Final = 3
"""Looks in a row that tell of steady work."""

AWAITED: Final = 0.97
"""A part of the time that is all of it, but for what a program does between two launches."""

BEHIND_NS: Final = SECOND // 100
"""A limiter's clock lags behind by the burst of whoever takes less than it may; by more only of a
container that had work on the GPU meanwhile."""

STARVED_NS: Final = SECOND // 2

RATES: Final = 64
"""Changes of a rate that are remembered: it changes at some looks, and rests for long."""


@dataclass(slots=True)
class Rates:
    """The rates that a container was granted, oldest first: since when, and which."""

    changes: list[tuple[int, float]] = field(default_factory=list)

    def enter(self, time: int, rate: float) -> None:
        if not self.changes or self.changes[-1][1] != rate:
            self.changes.append((time, rate))
            del self.changes[:-RATES]

    def mean(self, since: int, until: int) -> float:
        """Between two moments; the first known holds for all before. 0 if none is known."""
        if not self.changes or until <= since:
            return self.changes[-1][1] if self.changes else 0.0
        total, end = 0.0, until
        for begin, rate in reversed(self.changes):
            first = max(begin, since)
            if first < end:
                total, end = total + rate * (end - first), first
        return (total + self.changes[0][1] * (end - since)) / (until - since)


@dataclass(frozen=True, slots=True)
class UsageMark:
    """One look. waits: a number that grows whenever a launch was made to wait. awaited: for how
    long threads have waited for the end of work so far. behind: by how much more than a burst the
    limiter's clock was behind the time. going: something of what was charged has not ended. long: a
    launch longer than a time slice is there; nothing may be charged for several looks then. ahead:
    the limiter's clock is ahead of the time: it holds launches back now, or soon."""

    time: int
    charged: int
    waits: int
    awaited: int = 0
    behind: int = 0
    going: bool = False
    long: bool = False
    ahead: bool = False


@dataclass(slots=True)
class UsageHistory:
    """Of one container on one GPU, oldest look first."""

    marks: list[UsageMark] = field(default_factory=list)

    def enter(self, mark: UsageMark) -> None:
        """A look; one that contradicts what was seen begins the history anew."""
        marks = self.marks
        if marks and (mark.time <= marks[-1].time or mark.waits < marks[-1].waits):
            marks.clear()
        marks.append(mark)
        while len(marks) > 2 and marks[1].time <= mark.time - KEPT_NS:  # noqa: PLR2004
            del marks[0]

    def rest(self, mark: UsageMark) -> None:
        """A look at which nothing has happened for long."""
        self.marks.clear()
        self.marks.append(mark)

    def awaits(self, span: int) -> float:
        """Of the last `span`, the part in which it waited for the end of its work on the GPU."""
        last = self.marks[-1]
        first = next((one for one in reversed(self.marks) if one.time <= last.time - span), last)
        return (last.awaited - first.awaited) / max(span, last.time - first.time)

    @property
    def starved(self) -> bool:
        """Whether it has had work on the GPU all the time lately, not held back by the limiter.

        Either its clock falls behind, which it does only while there is work. Or its threads wait
        for the end of one launch before the next, all the time, and none waits for the limiter.
        """
        last, before = self.marks[-1], self.marks[-2:][0]
        if last.charged == before.charged and not (last.long and before.long):
            return False
        if last.behind > BEHIND_NS and last.going:
            return True
        first = next(
            (one for one in reversed(self.marks) if one.time <= last.time - STARVED_NS), last
        )
        return first.waits == last.waits and self.awaits(STARVED_NS) >= AWAITED

    @property
    def lacking(self) -> bool:
        """Whether it wants more than it has, and its limiter does not hold it back.

        Its threads wait all the time, for the GPU or for a place in its queue. Either none waits
        for the limiter meanwhile, or its clock is not ahead of the time although it has work.
        """
        last, span = self.marks[-1], 2 * LOOK_NS
        first = next((one for one in reversed(self.marks) if one.time <= last.time - span), last)
        waits, awaited = last.waits - first.waits, last.awaited - first.awaited
        if waits + awaited < AWAITED * max(span, last.time - first.time):
            return False
        return waits == 0 or (last.going and not last.ahead)

    @property
    def waited(self) -> bool:
        """Whether a launch was made to wait since the look before the last."""
        return len(self.marks) > 1 and self.marks[-1].waits > self.marks[-2].waits

    @property
    def steady(self) -> bool:
        """Whether something was charged before each of the last looks."""
        last = self.marks[-STEADY:]
        return len(last) == STEADY and all(a.charged < b.charged for a, b in pairwise(last))

    @property
    def newest(self) -> float:
        """The share charged since the look before the last, and for as long as a look takes."""
        step = self.marks[-1].time - self.marks[-2].time if len(self.marks) > 1 else 0
        return self.share(max(step, LOOK_NS))

    def share(self, span: int) -> float:
        """The share of the last `span` that was charged for; of less, while less is known."""
        last = self.marks[-1] if self.marks else UsageMark(0, 0, 0)
        begin = max(self.marks[0].time, last.time - span) if self.marks else 0
        if begin >= last.time:
            return 0.0
        return max(0.0, last.charged - self._charged_at(begin)) / (last.time - begin)

    def _charged_at(self, time: int) -> float:
        """Between the first look and the last."""
        after = self.marks[-1]
        for before in reversed(self.marks):
            if before.time <= time:
                part = (time - before.time) / max(1, after.time - before.time)
                return before.charged + part * (after.charged - before.charged)
            after = before
        return float(after.charged)

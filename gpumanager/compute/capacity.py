"""How much GPU time a GPU yields: all of it, less what it loses by switching between processes.

A GPU that gives processes time slices in turn loses some of each to the switch, and no container is
charged for that. Guarantees that sum up to the whole GPU cannot all be met, and the loss falls on
the container with the largest, which alone is not held back by its limiter.

    capacity = (Δcharged + Δretired) / 2Δt, summed over all containers, while one is starved

A container is starved (`History.starved`) when it has work on the GPU all the time and its limiter
does not hold it back. Then the GPU was never idle, so what all had together is what it can yield.
Charges lead what the GPU has done by what is in flight, and retired charges lag behind it, so that
their middle is taken. Example: guarantees of 30 and 70 % with switches of 50 µs between slices of
1,024 µs: they get 30 and 65 %, the capacity is 95 %, and each is granted 0.95 of its guarantee.

While no container is starved nothing is measured, and the capacity grows until one is starved or
the GPU is whole: so the loss by a load that has left is not kept.

What is lent beyond guarantees gives way first, and before anything is measured: while a container
lacks GPU time (`History.lacking`) and has less than its guarantee, less is lent from look to look.
Example: 30 % that may burst beside 60 %: 40 and 60 are granted, 40 and 55 taken; two looks later 34
and 60 are. More is lent again only while two or more work and none lacks anything: one that works
alone loses nothing by switches, and shows nothing of what a loan costs others.

Pure: times and amounts are ns; times are of CLOCK_MONOTONIC.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.fair import Claim
from gpumanager.compute.history import AWAITED, LOOK_NS
from gpumanager.compute.values import SECOND, Holder, Reading

FIRST_NS: Final = SECOND // 2
"""For so long somebody is starved before anything is measured."""

WINDOW_NS: Final = 4 * SECOND
"""Over the last so long the capacity is measured."""

SPARE: Final = 0.003
"""Granted beyond what was measured, so that a starved container stays so and measuring goes on."""

RECOVERY: Final = 0.03
"""By which the capacity grows in a second in which nobody is starved."""

LOAN_STEP: Final = 0.3
"""By which less is lent in a second in which a guarantee is not met for want of GPU time."""

LOAN_RECOVERY: Final = 0.035
"""By which more is lent in a second in which two or more work and none lacks GPU time."""

LEAST: Final = 0.85
"""Switches of 180 us between slices of 1,024. A process that no meter shows takes what is lost
beyond that, and containers that pay do not make room for it."""


@dataclass(slots=True)
class Capacity:
    """Of one GPU.

    part: of its time, that containers can have together. lendable: up to which more than guarantees
    is granted, at first no more than is left after switching. at: of the last look; there: the
    containers at it. sums: of charged and retired at the looks at which somebody was starved,
    without one in between at which nobody was.
    """

    part: float = 1.0
    lendable: float = 1.0
    at: int = 0
    there: frozenset[Holder] = frozenset()
    sums: list[tuple[int, int]] = field(default_factory=list)

    def lend(self, elapsed: int, *, lacking: bool, short: bool, alone: bool) -> None:
        """Since the last look. lacking: somebody wants more than it has, and its limiter does not
        hold it back. short: such a one has less than its guarantee. alone: no two work, so that no
        switch shows what a loan costs."""
        change = -LOAN_STEP if short else 0.0 if lacking or alone else LOAN_RECOVERY
        elapsed = min(elapsed, LOOK_NS)
        self.lendable = min(1.0, max(LEAST, self.lendable + change * elapsed / SECOND))

    def update(self, now: int, readings: Sequence[Reading], starved: Collection[Holder]) -> None:
        """A look at all containers of the GPU; times must not run backwards."""
        elapsed, self.at = now - self.at, now
        before, self.there = self.there, frozenset(one.holder for one in readings)
        if not starved:
            self.sums.clear()
            self.part = min(1.0, self.part + RECOVERY * elapsed / SECOND)
            return
        if before != self.there:
            self.sums.clear()
        self.sums = [one for one in self.sums if one[0] >= now - WINDOW_NS]
        self.sums.append((now, sum(one.charged_ns + one.retired_ns for one in readings)))
        (first, begin), (last, end) = self.sums[0], self.sums[-1]
        if last - first >= FIRST_NS:
            self.part = min(1.0, max(LEAST, (end - begin) / (2 * (last - first)) + SPARE))


SHORTEST_NS: Final = SECOND // 50
"""Between two looks, to tell a loss from the launches of a moment."""

LEAST_ALTERNATING: Final = 0.5
"""What launches as short as a switch leave of the GPU. Containers that say that they launch ever so
often for next to nothing do not lower their neighbours' guarantees below that."""


@dataclass(slots=True)
class Alternation:
    """What programs that wait for the end of each launch lose to each other, on one GPU.

    Such a program has one launch on the GPU at a time. As soon as it ends, the GPU goes to the next
    one, and comes back after one launch of that: a switch at nearly each launch. Two of them get
    the same number of launches, whatever they are guaranteed. If the limiter holds back the one
    with the smaller guarantee, the other has several launches in a row. So the loss belongs to the
    launches of those that launch less often:

        loss = lost * (launches of all - launches of the one that launches most)

    A container held to a multiple `level` of its guarantee launches level * guarantee / cost times
    a second, so level * (sum of guarantees) + loss at that level = 1. Example: guarantees of 30 and
    60 %, launches and switches of 50 us: 0.3 x + 0.6 x + 100 us * 0.3 x / 50 us = 1 at x = 2/3.
    Both would get 25 %; now they get 20 and 40.

    The loss is measured while a container has less than it wants, up to two switches for each
    launch. A container that is charged too little looks like such a loss. So it counts only as far
    as launches of its neighbours, each of them waited for, can explain it.

    switch_ns: what a switch costs. costs: of a launch of each container, while all that work wait
    for each of theirs; else of none. lost: for each launch but those of the container that has
    most. at, before: the last look.
    """

    switch_ns: float
    costs: Mapping[Holder, float] = field(default_factory=dict)
    lost: float = 0.0
    at: int = 0
    before: Mapping[Holder, Reading] = field(default_factory=dict)

    def update(self, now: int, readings: Sequence[Reading], *, lacking: bool) -> None:
        """A look; times must not run backwards. lacking: somebody wants more than it has, and its
        limiter does not hold it back."""
        elapsed = now - self.at
        if elapsed < SHORTEST_NS:
            return
        steps = [
            _step(self.before[one.holder], one) for one in readings if one.holder in self.before
        ]
        working = [step for step in steps if step.charged > 0 or step.awaited > 0]
        self.at, self.before = now, {one.holder: one for one in readings}
        if len(working) < 2 or not all(one.awaits_each(elapsed) for one in working):  # noqa: PLR2004
            self.costs, self.lost = {}, 0.0
            return
        self.costs = {one.holder: one.charged / one.launches for one in working}
        if lacking:
            lost = elapsed - sum(one.charged for one in working)
            fewer = _without_most(one.launches for one in working)
            self.lost = min(max(0.0, lost / fewer), 2 * self.switch_ns)
        else:
            self.lost *= 1 - RECOVERY * min(elapsed, SECOND) / SECOND

    def yields(self, claims: Mapping[Holder, Claim]) -> float:
        """The part of the GPU's time that these can have together, if each has the same part of its
        guarantee; 1 where nothing is known to be lost."""
        wants = {who: min(claims[who].guarantee, claims[who].want) for who in self.costs}
        guaranteed = sum(wants.values())
        if not self.lost or not guaranteed:
            return 1.0
        launches = _without_most(want / self.costs[who] for who, want in wants.items())
        return max(LEAST_ALTERNATING, guaranteed / (guaranteed + self.lost * launches))


@dataclass(frozen=True, slots=True)
class _Step:
    """What one container did between two looks."""

    holder: Holder
    charged: int
    launches: int
    awaited: int
    waits: int

    def awaits_each(self, elapsed: int) -> bool:
        """Whether it waited for the end of each launch, or for leave to make the next, all the
        time."""
        waited = self.awaited + self.waits
        return self.awaited >= self.charged > 0 < self.launches and waited >= AWAITED * elapsed


def _step(before: Reading, now: Reading) -> _Step:
    return _Step(
        now.holder,
        now.charged_ns - before.charged_ns,
        now.launches - before.launches,
        now.awaited_ns - before.awaited_ns,
        now.waits - before.waits,
    )


def _without_most(numbers: Iterable[float]) -> float:
    return sum(sorted(numbers)[:-1])

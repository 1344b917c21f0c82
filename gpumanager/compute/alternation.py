"""What programs that wait for the end of each launch lose to each other: a switch at nearly each.

Such a program has one launch on the GPU at a time. As soon as it ends, the GPU goes to whoever
waits, and comes back after one launch of that one. Two of them so get the same number of launches,
whatever they are promised, and launches as short as a switch lose half of the GPU. If the limiter
holds the one with the smaller promise back, the other has several launches in a row without a
switch, and less is lost. So the loss is not one of the GPU, but one of each launch of those that
launch less often:

    loss = lost * (launches of all - launches of who launches most)

Who is held to a multiple `level` of its promise launches level * promise / cost times a second, so

    level * (sum of promises) + loss at that level = 1

Example: promises of 30 and 60 %, launches of 50 us, switches of 50 us. Both get 25 %, and 100 us
are lost with each launch of one. 0.3 x + 0.6 x + 100 us * 0.3 x / 50 us = 1 at x = 2/3: 20 and
40 %.

What is lost is measured while somebody has less than it wants, and no more is believed than two
switches for each launch. A container that is charged for less than it takes looks like such a loss.
It is believed only as far as launches of its neighbours, each of them waited for, can explain it:
beside programs that have several launches under way, or long ones, nothing is.

Pure: times and amounts are ns; times are of CLOCK_MONOTONIC.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumanager.compute.fair import Claim
from gpumanager.compute.history import AWAITED
from gpumanager.compute.values import SECOND, Holder, Reading

SHORTEST_NS: Final = SECOND // 50
"""Between two looks, to tell a loss from the launches of a moment."""

RECOVERY: Final = 0.03
"""The part of it that is forgotten in a second in which everybody has what it wants."""


LEAST: Final = 0.5
"""What launches as short as a switch leave of the GPU. Containers that say that they launch ever so
often for next to nothing do not lower their neighbours' promises below that."""


@dataclass(slots=True)
class Alternation:
    """On one GPU. switch_ns: what a switch costs. costs: of a launch of each container, while all
    that work wait for each of theirs; else of none. lost: for each launch but those of the
    container that has most. at, before: the last look."""

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
        promise; 1 where nothing is known to be lost."""
        wants = {who: min(claims[who].promise, claims[who].want) for who in self.costs}
        promised = sum(wants.values())
        if not self.lost or not promised:
            return 1.0
        launches = _without_most(want / self.costs[who] for who, want in wants.items())
        return max(LEAST, promised / (promised + self.lost * launches))


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

"""Containers that go on taking GPU time outside of their turns.

A container cannot grant itself a turn, but it can launch out of turn. NVML's samples show what it
took so (`gpumanager.compute.audit`), and it is charged for that. One that goes on all the same has
an account here, out of its reach:

    balance += taken - 1.1 * rate * time, but never below what it may make good

Its turns were granted, so that only what it took outside of them counts, at a rate of 0. From a
balance of `SLACK_NS` on what it takes is summed up, and forgotten with time; at `HELD_NS` it is
*held*, for a term. Example: half of the time is found to be taken out of turn, each half second;
after four seconds the container is held.

What can be done about such a container, short of ending it, is to pause it from outside. While it
is held all of its time counts, and its rate is its guarantee. A second account without tolerance is
kept, and the container is `paused` at each look that finds that above zero. It then gets its
guarantee, and no more.

Pure: ns of CLOCK_MONOTONIC.
"""

import math
from dataclasses import dataclass
from typing import Final

from gpumanager.compute.values import SECOND

TOLERANCE: Final = 1.1
SLACK_NS: Final = SECOND // 2
"""A balance that one mistake of the audit may reach."""

HELD_NS: Final = SECOND
"""Taken in spite of it: from then on the agent holds it to its rate, where that is enabled."""

TERM_NS: Final = 60 * SECOND
LONGEST_TERM_NS: Final = 3600 * SECOND
"""It is held for so long: the first time, and at most. Each time it is four times as long."""

FORGETTING_NS: Final = 60 * SECOND
"""Of what was taken, a third is remembered after as long."""

SAVED_NS: Final = SECOND
"""For so long a container may take nothing, and make it good."""


@dataclass(slots=True)
class Overdraft:
    """Of one container on one GPU. at: of the last look. spent: taken while the balance was far
    above zero. excess: as balance, without tolerance. term: for how long it is held the next time.
    """

    at: int
    balance: float = 0.0
    spent: float = 0.0
    excess: float = 0.0
    held_until: int = 0
    term: int = TERM_NS

    def look(self, now: int, turns: int, outside: int, guarantee: float) -> None:
        """turns: charged since the last look; outside: found since then."""
        taken, rate = (outside + turns, guarantee) if self.held else (outside, 0.0)
        elapsed, self.at = now - self.at, now
        self.spent *= math.exp(-elapsed / FORGETTING_NS)
        if self.balance > SLACK_NS:
            self.spent += taken
        self.balance = max(self.balance + taken - TOLERANCE * rate * elapsed, -rate * SAVED_NS)
        # a container that is paused for a whole interval, and less was due, gets that back
        self.excess = max(self.excess + taken - rate * elapsed, -rate * elapsed)
        if self.spent > HELD_NS and not self.held:
            self.held_until = now + self.term
            self.term = min(4 * self.term, LONGEST_TERM_NS)
        if not self.held:
            self.excess = min(self.excess, 0.0)

    @property
    def held(self) -> bool:
        """Whether it is to be held to its rate from outside."""
        return self.held_until > self.at

    @property
    def paused(self) -> bool:
        """Whether it has had more than its rate, and is to wait."""
        return self.held and self.excess > 0

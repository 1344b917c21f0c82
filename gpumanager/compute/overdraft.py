"""Containers that launch on although their GPU time is used up.

A container's limiter stands in a page that its processes write. One that writes "all is paid" into
it launches without end, and its meter still counts what it takes: more than it was granted. So each
look keeps the limiter's account once more, out of the container's reach:

    balance += charged - 1.1 * rate * time, but never below what may be saved up

A launch is made while the balance is not above zero, so a container that charges for another while
it is far above bypasses its limiter. A tenth more is allowed, for the two accounts differ a little.
Example: granted 30 %, takes 50: the balance grows by 0.17 s a second; after 3 s it is at
`SLACK_NS`, and what is charged from then on is counted. After `GROSS_NS` more it is sure, which
takes 10 s.

Launches of unknown cost are charged when they have ended, several at once: that is what the slack
and the count are for, and it is forgotten with time.

A container that forges its meter as well charges itself nothing, but NVML's samples show what it
takes: what it owes by them is charged here, too, whether its page takes it up or not.

What can be done about such a container, short of ending it, is to pause it from outside: from
`HELD_NS` on it is *held*, a second account without tolerance is kept, and the container is `paused`
at each look that finds that above zero. It then gets what it was granted, and no more. A container
that was held by mistake loses nothing of its GPU time: its limiter would not let it launch either.

A container that takes turns cannot bypass a limiter in a page, but it can launch out of turn. What
it took so is found by NVML's samples alone (`Bypass`), and counts against it from the first second.

Pure: ns of CLOCK_MONOTONIC.
"""

import math
from dataclasses import dataclass
from typing import Final

from gpumanager.compute.values import SECOND

TOLERANCE: Final = 1.1
SLACK_NS: Final = SECOND // 2
"""A balance that a limiter may reach: corrections, rates that were changed a look ago, and what
several processes launched at one moment."""

GROSS_NS: Final = 5 * SECOND
"""Charged in spite of it: nobody comes to so much by accident."""

HELD_NS: Final = SECOND
"""Charged in spite of it: from then on the agent holds it to its rate, where that is enabled."""

TERM_NS: Final = 60 * SECOND
LONGEST_TERM_NS: Final = 3600 * SECOND
"""It is held for so long: the first time, and at most. Each time it is four times as long."""

RESET_NS: Final = SECOND
"""Counters run backwards by less, where an estimate was too high. By more: somebody writes them."""

FORGETTING_NS: Final = 60 * SECOND
"""Of what was counted, a third is remembered after as long."""

SAVED_NS: Final = SECOND
"""Made good by a limiter after others took what it should have had (LIMITER_LAG_NS)."""


@dataclass(slots=True)
class Overdraft:
    """Of one container on one GPU. at: of the last look; charged: the most that its meter said.
    spent: charged while the balance was far above zero. excess: as balance, without tolerance.
    term: for how long it is held the next time.
    """

    at: int
    charged: int
    balance: float = 0.0
    spent: float = 0.0
    excess: float = 0.0
    held_until: int = 0
    term: int = TERM_NS

    def look(self, now: int, charged: int, rate: float, burst: int, owed: float = 0.0) -> None:
        """charged: by its meter, without what we added. rate: granted since the last look. owed:
        what was found since then that it did not pay, below 0 to get back."""
        elapsed, self.at = now - self.at, now
        change = self._follow(charged) + owed
        self.spent *= math.exp(-elapsed / FORGETTING_NS)
        if self.balance > SLACK_NS:
            self.spent += max(0, change)
        self.balance = max(
            self.balance + change - TOLERANCE * rate * elapsed, -(burst + rate * SAVED_NS)
        )
        # a container that is paused for a whole interval, and less was due, gets that back
        self.excess = max(self.excess + change - rate * elapsed, -(burst + rate * elapsed))
        if self.spent > HELD_NS and not self.held:
            self.held_until = now + self.term
            self.term = min(4 * self.term, LONGEST_TERM_NS)
        if not self.held:
            self.excess = min(self.excess, 0.0)

    def _follow(self, charged: int) -> int:
        """By how much it has grown. What was given back, and is charged again, counts once."""
        self.charged = min(self.charged, charged + RESET_NS)
        grown = max(0, charged - self.charged)
        self.charged += grown
        return grown

    @property
    def gross(self) -> bool:
        """Whether it is sure that this container does not hold to its limiter."""
        return self.spent > GROSS_NS

    @property
    def held(self) -> bool:
        """Whether it is to be held to its rate from outside."""
        return self.held_until > self.at

    @property
    def paused(self) -> bool:
        """Whether it has had more than its rate, and is to wait."""
        return self.held and self.excess > 0


@dataclass(slots=True)
class Bypass:
    """Of one container that takes turns, on one GPU. Its turns were granted, so that only what it
    took outside of them counts, until it is held: then all does, beyond its guarantee."""

    account: Overdraft
    counted: int = 0

    def look(self, now: int, turns: int, outside: int, guarantee: float) -> None:
        """turns: charged since the last look; outside: found since then."""
        held = self.account.held
        self.counted += outside + (turns if held else 0)
        self.account.look(now, self.counted, guarantee if held else 0.0, 0)

"""Containers that go on taking GPU time outside of their turns.

A container cannot grant itself a turn, but it can launch out of turn. NVML's samples show what it
took so (`gpumanager.compute.audit`), and it is charged for that. One that goes on all the same has
an account here, out of its reach: what it took out of turn is summed up, and forgotten with time;
at `HELD_NS` it is *held*, for a term. Example: half of the time is found to be taken out of turn,
each half second; after three and a half seconds the container is held.

What can be done about such a container, short of ending it, is to pause it from outside. While it
is held all of its time counts, and what it has had beyond its guarantee; the container is `paused`
at each look that finds that above zero. It then gets its guarantee, and no more.

Pure: ns of CLOCK_MONOTONIC.
"""

import math
from dataclasses import dataclass
from typing import Final

from gpumanager.compute.audit import SECOND

HELD_NS: Final = SECOND * 3 // 2
"""Half a second of it one mistake of the audit may reach. From then on the agent holds a container
to its guarantee, where that is enabled."""

TERM_NS: Final = 60 * SECOND
LONGEST_TERM_NS: Final = 3600 * SECOND
"""It is held for so long: the first time, and at most. Each time it is four times as long."""

FORGETTING_NS: Final = 60 * SECOND
"""Of what was taken, a third is remembered after as long."""


@dataclass(slots=True)
class Overdraft:
    """Of one container on one GPU. at: of the last look. spent: taken out of turn. excess: what it
    has had beyond its guarantee while held. term: for how long it is held the next time."""

    at: int
    spent: float = 0.0
    excess: float = 0.0
    held_until: int = 0
    term: int = TERM_NS

    def look(self, now: int, turns: int, outside: int, guarantee: float) -> None:
        """turns: charged since the last look; outside: found since then."""
        elapsed, self.at = now - self.at, now
        self.spent = self.spent * math.exp(-elapsed / FORGETTING_NS) + outside
        due = guarantee * elapsed
        # a container that is paused for a whole interval, and less was due, gets that back
        self.excess = max(self.excess + turns + outside - due, -due) if self.held else 0.0
        if self.spent > HELD_NS and not self.held:
            self.spent, self.held_until = 0.0, now + self.term
            self.term = min(4 * self.term, LONGEST_TERM_NS)

    @property
    def held(self) -> bool:
        """Whether it is to be held to its rate from outside."""
        return self.held_until > self.at

    @property
    def paused(self) -> bool:
        """Whether it has had more than its rate, and is to wait."""
        return self.held and self.excess > 0

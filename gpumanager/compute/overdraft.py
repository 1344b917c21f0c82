"""Containers that launch on although their GPU time is used up.

A container's limiter stands in a page that its processes write. One that writes "all is paid" into
it launches without end, and its meter still counts what it takes: more than it was granted. So each
look keeps the limiter's account once more, out of the container's reach:

    balance += charged - 1.1 * rate * time, but never below what may be saved up

A launch is made while the balance is not above zero, so whoever charges for another while it is far
above does not hold to its limiter. A tenth more is allowed, for the two accounts differ a little.
Example: granted 30 %, takes 50: the balance grows by 0.17 s a second; after 3 s it is at
`SLACK_NS`, and what is charged from then on is counted. After `GROSS_NS` more it is sure, which
takes 10 s.

Launches of unknown cost are charged when they have ended, several at once: that is what the slack
and the count are for, and it is forgotten with time.

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

FORGETTING_NS: Final = 60 * SECOND
"""Of what was counted, a third is remembered after as long."""

SAVED_NS: Final = SECOND
"""Made good by a limiter after others took what it should have had (LIMITER_LAG_NS)."""


@dataclass(slots=True)
class Overdraft:
    """Of one container on one GPU. at, charged: of the last look. spent: charged while the balance
    was far above zero."""

    at: int
    charged: int
    balance: float = 0.0
    spent: float = 0.0

    def look(self, now: int, charged: int, rate: float, burst: int) -> None:
        """charged: by its meter, what we added included. rate: granted since the last look."""
        elapsed, self.at = now - self.at, now
        change, self.charged = charged - self.charged, charged
        self.spent *= math.exp(-elapsed / FORGETTING_NS)
        if self.balance > SLACK_NS:
            self.spent += max(0, change)
        self.balance = max(
            self.balance + change - TOLERANCE * rate * elapsed, -(burst + rate * SAVED_NS)
        )

    @property
    def gross(self) -> bool:
        """Whether it is sure that this container does not hold to its limiter."""
        return self.spent > GROSS_NS

"""Whether a cluster fills up or lives: how many pods leave for those that come.

Counted over the pods that came lately, of which one that is HALF_LIFE pods ago counts half; so a
node that is drained once is soon forgotten. What is usual is looked at seldom, and what is in use
is given up only for what is DIFFERENT, because every score depends on it. Who learns from a
cluster and who replays a trace look at the same moments, by this code.
"""

from dataclasses import dataclass
from typing import Final

HALF_LIFE: Final = 1000
"""Pods."""
FIRST: Final = (100, 300)
EVERY: Final = 1000
DIFFERENT: Final = 0.1
"""By how much a part has to have changed."""

KEPT: Final = 2 ** (-1 / HALF_LIFE)


@dataclass(slots=True)
class Turnover:
    """Counts pods with GPUs. seen: how many have come in all."""

    seen: int = 0
    _came: float = 0.0
    _left: float = 0.0

    def came(self) -> bool:
        """One more. True where it is time to look at what has become usual."""
        self.seen += 1
        self._came = self._came * KEPT + 1
        self._left *= KEPT
        return self.seen in FIRST or self.seen % EVERY == 0

    def left(self) -> None:
        """One of them is gone."""
        self._left += 1

    @property
    def leaving(self) -> float:
        """0 while nobody leaves, 1 where as many leave as come, or more."""
        return min(1.0, self._left / self._came) if self._came else 0.0

"""How long to wait between attempts: longer each time, and never in step with others. Pure."""

from collections.abc import Iterator
from random import Random
from typing import Final

FIRST: Final = 0.25
LONGEST: Final = 15.0
SPREAD: Final = 0.5
"""The part of a pause that chance decides about."""


def pauses(random: Random, first: float = FIRST, longest: float = LONGEST) -> Iterator[float]:
    """Seconds, without end: doubled each time up to `longest`, of which chance takes off a part."""
    pause = first
    while True:
        yield pause * (1 - SPREAD * random.random())
        pause = min(2 * pause, longest)

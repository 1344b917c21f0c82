"""Whether the kubelet waits for us, or is about to call again: what can wait a moment does.

It stands still during each of its calls, and calls Allocate right after GetPreferredAllocation.
Work that takes some milliseconds and comes every now and then (shares, directories made ahead,
memory given back) begins at other times. It waits a moment, never for good: pods may come without
a pause.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

LONGEST: Final = 0.02
"""Seconds for which anything is put off; a call that takes longer is no reason any more."""

LOOK: Final = 0.002
"""Seconds between two looks at whether it is over."""


class Calm:
    """clock: seconds, never back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0

    @property
    def now(self) -> bool:
        return self._until <= self._clock()

    def expect(self) -> None:
        """The kubelet calls, or will in a moment."""
        self._until = self._clock() + LONGEST

    def over(self) -> None:
        """It has what it wanted."""
        self._until = 0.0

    async def come(self) -> None:
        """Returns when nobody is expected, and after LONGEST in any case."""
        latest = self._clock() + LONGEST
        while not self.now and self._clock() < latest:  # noqa: ASYNC110  # it may end by time
            await asyncio.sleep(LOOK)

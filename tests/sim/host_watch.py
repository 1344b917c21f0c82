"""Whether the machine let a program go on when it wanted to.

On the real clock a share can be short because the machine ran somebody else when the program would
have launched. Who sleeps for a millisecond again and again sees the same: how much later than asked
for it was woken, as a part of all the time.
"""

import threading
import time
from typing import Self

import pytest

PAUSE, LATE = 0.001, 0.001
BUSY = 0.02


class HostWatch:
    """Use around what is measured. late: the part of the time by which we were woken too late."""

    def __init__(self) -> None:
        self.late = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on)

    @property
    def busy(self) -> bool:
        return self.late > BUSY

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def expect(self, what: object, *, holds: bool) -> None:
        """What a busy machine may keep from being so. It is no measurement then, and skipped."""
        if not holds and self.busy:
            pytest.skip(f"the machine was late by {self.late:.0%} of the time: {what}")
        assert holds, what

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        begun, lost, last = time.monotonic(), 0.0, time.monotonic()
        while not self._over.is_set():
            time.sleep(PAUSE)
            now = time.monotonic()
            lost += max(now - last - PAUSE - LATE, 0.0)
            last = now
        self.late = lost / (last - begun)

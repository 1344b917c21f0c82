"""The clock of a simulated kubelet: the system's, or one that a test moves."""

import asyncio
import time
from typing import Final, Protocol

NS: Final = 1_000_000_000
"""A second."""


class Timer(Protocol):
    """CLOCK_MONOTONIC in nanoseconds, as somebody sees it."""

    def now(self) -> int: ...

    async def sleep_until(self, deadline: int) -> None: ...


class RealClock:
    """The system's."""

    def now(self) -> int:
        return time.monotonic_ns()

    async def sleep_until(self, deadline: int) -> None:
        await asyncio.sleep(max(deadline - self.now(), 0) / NS)

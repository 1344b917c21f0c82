"""Two clocks for a simulation: the system's, and one that moves only while everybody sleeps.

The virtual one is a page of memory that the programs of the simulation share with us
(native/sim/clock/simclock.h): they have its library preloaded, we take part by our own word. While
we are awake its time stands, and the event loop, which lives by the system's clock, can serve
whoever asks. A simulation that sleeps by `sleep_until` runs the same on either clock.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import vcuda_shim
from gpumanager.errors import GpuManagerError
from vcuda_shim import _sim

EPOCH_NS: Final = 1_000_000_000_000
"""Where virtual time begins; 0 would be never to many."""

PATIENCE_SECONDS: Final = 60.0
"""Of real time, for one sleep: somebody computes, or waits for what this clock knows nothing of."""

_STATES: Final = {
    _sim.lib.SIMCLOCK_RUNNING: "running",
    _sim.lib.SIMCLOCK_ASLEEP: "asleep",
    _sim.lib.SIMCLOCK_LEAVING: "leaving",
    _sim.lib.SIMCLOCK_ASIDE: "set aside",
}


class ClockStuck(GpuManagerError):
    """Virtual time does not go on."""


@dataclass(frozen=True, slots=True)
class Taker:
    """A thread that lives by a virtual clock. deadline: what it sleeps until, if it is asleep."""

    pid: int
    tid: int
    state: str
    deadline: int


class Clock(Protocol):
    """CLOCK_MONOTONIC in nanoseconds, as the programs of the simulation see it."""

    def now(self) -> int: ...

    async def sleep_until(self, deadline: int) -> None: ...

    def environment(self) -> Mapping[str, str]:
        """What a program needs to live by it."""

    def asleep_until(self, pid: int) -> int | None:
        """When the process goes on: that of its threads which does so first. None: unknown yet."""


class RealClock:
    """The system's."""

    def now(self) -> int:
        return time.monotonic_ns()

    async def sleep_until(self, deadline: int) -> None:
        await asyncio.sleep(max(deadline - self.now(), 0) / 1e9)

    def environment(self) -> Mapping[str, str]:
        return {}

    def asleep_until(self, pid: int) -> int | None:  # noqa: ARG002 - nobody is asked
        return None


class VirtualClock:
    """The page at `path`, made by `virtual_clock`, of which this process is the conductor."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._page: Any = _opened(path)
        self._self: int = _sim.lib.simclock_join(self._page, os.getpid(), os.getpid(), True)
        _check(min(self._self, 0), "joining", path)
        _check(_sim.lib.simclock_wait(self._page, self._self, 1000), "beginning", path)

    def now(self) -> int:
        return int(_sim.lib.simclock_peek(self._page))

    async def sleep_until(self, deadline: int) -> None:
        """Let everybody go on until then; raises ClockStuck."""
        result = await asyncio.shield(asyncio.to_thread(self._sleep, deadline))
        if result != 0:
            states = ", ".join(f"process {one.pid} {one.state}" for one in self.takers())
            raise ClockStuck(f"virtual time stands since {PATIENCE_SECONDS:.0f} s: {states}")

    def _sleep(self, deadline: int) -> int:
        patience = int(PATIENCE_SECONDS * 1000)
        return int(_sim.lib.simclock_sleep(self._page, self._self, deadline, patience))

    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(vcuda_shim.SIM_CLOCK), "SIM_CLOCK": str(self._path)}

    def asleep_until(self, pid: int) -> int | None:
        found = [taker for taker in self.takers() if taker.pid == pid]
        if not found or any(taker.state != "asleep" for taker in found):
            return None
        return min(taker.deadline for taker in found)

    def takers(self) -> Sequence[Taker]:
        """All threads that take part, the conductor's among them; the dead are gone."""
        rows = _sim.ffi.new("struct simclock_taker[]", _sim.lib.SIMCLOCK_TAKERS)
        count = _sim.lib.simclock_takers(self._page, rows, len(rows))
        return tuple(
            Taker(row.pid, row.tid, _STATES[row.state], row.deadline) for row in rows[0:count]
        )

    def close(self) -> None:
        """Take no part any more; nobody may be asleep in `sleep_until`."""
        _sim.lib.simclock_leave(self._page, self._self)
        _sim.lib.simclock_close(self._page)

    @contextlib.contextmanager
    def for_the_simulator(self) -> Iterator[None]:
        """What this process itself sees of simulated GPUs is by this clock. Once at a time."""
        _sim.lib.sim_use_clock(_sim.lib.simclock_word(self._page))
        try:
            yield
        finally:
            _sim.lib.sim_use_clock(_sim.ffi.NULL)


@contextlib.contextmanager
def virtual_clock(path: Path) -> Iterator[VirtualClock]:
    """A clock whose page is a new file at `path`, for simulated GPUs made under it."""
    _check(_sim.lib.simclock_create(bytes(path), EPOCH_NS), "creating", path)
    clock = VirtualClock(path)
    try:
        with clock.for_the_simulator():
            yield clock
    finally:
        clock.close()


def _opened(path: Path) -> Any:
    page = _sim.ffi.new("struct simclock **")
    _check(_sim.lib.simclock_open(bytes(path), page), "opening", path)
    return page[0]


def _check(result: int, doing: str, path: Path) -> None:
    if result != 0:
        raise GpuManagerError(f"{doing} the clock {path}: {os.strerror(-result)}")

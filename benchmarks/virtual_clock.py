"""Clocks for a simulation: the system's, and one that moves only while everybody sleeps.

The virtual one is a page of memory that the programs of the simulation share with us
(native/sim/clock/simclock.h): they have its library preloaded, we take part by our own word. While
we are awake its time stands, and the event loop, which lives by the system's clock, can serve
whoever asks. A simulation that sleeps by `sleep_until` runs the same on either clock.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import vcuda_shim
from gpumanager.errors import GpuManagerError
from gpumanager.sim.clock import NS, RealClock, Timer
from vcuda_shim import _sim

EPOCH_NS: Final = 1000 * NS
"""Where virtual time begins; 0 would be never to many."""

PATIENCE_SECONDS: Final = 300.0
"""Of real time for one sleep: a program computes, or waits for what this clock does not see."""

_LOOK_SECONDS: Final = 0.002

_SIMULATOR: Final = threading.Lock()
"""Held by the clock that the simulator's code in this process goes by."""

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


class Clock(Timer, Protocol):
    """As the programs of the simulation see it.

    one_by_one: programs are to be started so, for the run to be repeatable.
    """

    one_by_one: bool

    def environment(self) -> Mapping[str, str]:
        """Return what a program needs to live by it."""

    async def line_up(self, pid: int, start: int, ended: Callable[[], bool]) -> None:
        """Let a process that was started just now come to where it sleeps until its start."""

    def world(self) -> int:
        """Return the address of a `struct vcuda_world` by which C threads of this process live by
        it; 0: the real one."""

    async def line_up_threads(self, count: int = 1) -> None:
        """Let so many threads of ours take part in the world and come to their first sleep."""

    def end_world(self) -> None:
        """Let its threads take no part any more, and not block: they can be joined."""


class SystemClock(RealClock):
    """The system's clock, which advances by itself."""

    one_by_one = False

    def environment(self) -> Mapping[str, str]:
        return {}

    async def line_up(self, pid: int, start: int, ended: Callable[[], bool]) -> None:
        pass

    def world(self) -> int:
        return 0

    async def line_up_threads(self, count: int = 1) -> None:
        pass

    def end_world(self) -> None:
        pass


class VirtualClock:
    """The page at `path`, made by `virtual_clock`, of which this process is the conductor."""

    one_by_one = True

    def __init__(self, path: Path) -> None:
        self._path = path
        page = _sim.ffi.new("struct simclock **")
        _check(_sim.lib.simclock_open(bytes(path), page), "opening", path)
        self._page: Any = page[0]
        self._self: int = _sim.lib.simclock_join(self._page, os.getpid(), os.getpid(), True)
        _check(min(self._self, 0), "joining", path)
        _check(_sim.lib.simclock_wait(self._page, self._self, 1000), "beginning", path)
        self._sleeper = ThreadPoolExecutor(1, thread_name_prefix="virtual-clock")

    def now(self) -> int:
        return int(_sim.lib.simclock_peek(self._page))

    async def sleep_until(self, deadline: int) -> None:
        """Let everybody go on until then; raises ClockStuck. One caller at a time."""
        loop = asyncio.get_running_loop()
        until = (self._page, self._self, deadline, int(PATIENCE_SECONDS * 1000))
        if await loop.run_in_executor(self._sleeper, _sim.lib.simclock_sleep, *until) != 0:
            states = ", ".join(f"process {one.pid} {one.state}" for one in self.takers())
            raise ClockStuck(f"virtual time stands since {PATIENCE_SECONDS:.0f} s: {states}")

    def set_wake(self, nanoseconds: int) -> None:
        """Set how long a thread that is woken takes to go on; 20 us until then."""
        _sim.lib.simclock_set_wake(self._page, nanoseconds)

    def world(self) -> int:
        return int(_sim.ffi.cast("uintptr_t", _sim.lib.sim_world(self._page)))

    async def line_up_threads(self, count: int = 1) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sum(one.pid == os.getpid() for one in self.takers()) <= count:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_SECONDS)
        await self.sleep_until(self.now() + 1)

    def end_world(self) -> None:
        _sim.lib.sim_world(_sim.ffi.NULL)

    def environment(self) -> Mapping[str, str]:
        return {"LD_PRELOAD": str(vcuda_shim.SIM_CLOCK), "SIM_CLOCK": str(self._path)}

    async def line_up(self, pid: int, start: int, ended: Callable[[], bool]) -> None:
        """Wait until all its threads sleep, up to `start` or later; 0: and not to go on at once."""
        while not ended():
            found, now = [taker for taker in self.takers() if taker.pid == pid], self.now()
            if not found or any(taker.state != "asleep" for taker in found):
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            until = min(taker.deadline for taker in found)
            if until >= start and until > now:
                return
            await self.sleep_until(max(until, now) + 1)  # it goes first, and we after it

    def takers(self) -> Sequence[Taker]:
        """Return all threads that take part, the conductor's among them; exited ones are
        removed."""
        rows = _sim.ffi.new("struct simclock_taker[]", _sim.lib.SIMCLOCK_TAKERS)
        count = _sim.lib.simclock_takers(self._page, rows, len(rows))
        return tuple(
            Taker(row.pid, row.tid, _STATES[row.state], row.deadline) for row in rows[0:count]
        )

    def close(self) -> None:
        """Take no part any more. Waits for a `sleep_until` that was cancelled: when all others
        have ended, that is over soon.
        """
        self._sleeper.shutdown()
        _sim.lib.simclock_leave(self._page, self._self)
        _sim.lib.simclock_close(self._page)

    @contextlib.contextmanager
    def for_the_simulator(self) -> Iterator[None]:
        """Let this process see its simulated GPUs by this clock. One at a time."""
        if not _SIMULATOR.acquire(blocking=False):
            raise GpuManagerError("this process has simulated GPUs on a virtual clock already")
        try:
            _sim.lib.sim_use_clock(_sim.lib.simclock_word(self._page))
            yield
        finally:
            _sim.lib.sim_use_clock(_sim.ffi.NULL)
            _SIMULATOR.release()


@contextlib.contextmanager
def virtual_clock(path: Path) -> Iterator[VirtualClock]:
    """Make a clock whose page is a new file at `path`, for simulated GPUs made under it."""
    _check(_sim.lib.simclock_create(bytes(path), EPOCH_NS), "creating", path)
    clock = VirtualClock(path)
    try:
        with clock.for_the_simulator():
            yield clock
    finally:
        clock.close()


def _check(result: int, doing: str, path: Path) -> None:
    if result != 0:
        raise GpuManagerError(f"{doing} the clock {path}: {os.strerror(-result)}")

"""How shares are measured: cases, windows, and what they are compared with.

Players stay alive over all cases of a kernel length: one without the shim, two in rooms, whose
shares are changed as they run. They take turns, without the shim before, between and after, so
that what the GPU does meanwhile meets all; in the cases of two tenants both play at once.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from gpu_check.clock import Clock, opened
from gpu_check.outcome import Finding
from gpu_check.place import Place
from gpu_check.player import Player, player
from gpu_check.shares import Rate, Share, finding, middle, share

SETTLE, WINDOW, TAIL = 0.8, 2.0, 0.3
"""Seconds: until what was paid in advance is used up and a changed share holds; measured; played
on while another one is still being measured."""

BARE_SETTLE, BARE_WINDOW = 0.3, 0.7
TOGETHER: Final = (30, 60)


@dataclass(frozen=True, slots=True)
class Kernel:
    """micros: how long one takes. batch: how many at a time where nobody waits for each."""

    text: str
    micros: int
    batch: int

    def unit(self, pattern: str) -> int:
        """How many are waited for together."""
        return {"sync": 1, "graph": max(2, self.batch)}.get(pattern, self.batch)


@dataclass(frozen=True, slots=True)
class Grid:
    """What is measured: kernels, ways of launching, promises in turn; and pairs of tenants."""

    kernels: tuple[Kernel, ...]
    patterns: tuple[str, ...]
    promises: tuple[int, ...]
    pairs: tuple[str, ...] = ()
    settle: float = SETTLE
    window: float = WINDOW


KERNELS: Final = (Kernel("50 us", 50, 100), Kernel("2 ms", 2000, 5), Kernel("20 ms", 20000, 1))
FULL: Final = Grid(KERNELS, ("async", "sync", "graph"), (10, 30, 50, 90), ("async", "sync"))
CONTROL: Final = Grid(KERNELS[1:2], ("async", "sync"), (30, 90))


@dataclass(frozen=True, slots=True)
class Stage:
    """The players, and the clock they are watched by."""

    place: Place
    clock: Clock
    bare: Player
    first: Player
    second: Player


async def measure(place: Place, engine: str, grid: Grid) -> AsyncIterator[Finding]:
    """A finding for each kernel and way of launching; raises CheckFailed."""
    async with staged(place, engine) as stage:
        for kernel in grid.kernels:
            calibrated = await stage.bare.tell("calibrate", micros=kernel.micros)
            size = int(calibrated["size"])
            async for one in _of_kernel(stage, kernel, size, grid):
                yield one


@asynccontextmanager
async def staged(place: Place, engine: str) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        rooms = [await place.limit(max(TOGETHER), room=name) for name in place.rooms]
        players = await asyncio.gather(
            *(stack.enter_async_context(player(place, engine, room)) for room in (None, *rooms))
        )
        clock = await stack.enter_async_context(opened(place.machine.gpu))
        yield Stage(place, clock, *players)


async def _of_kernel(stage: Stage, kernel: Kernel, size: int, grid: Grid) -> AsyncIterator[Finding]:
    """All ways of launching are measured before any is judged: the best of them without the shim
    says what the GPU can do.
    """
    alone: dict[str, list[Rate]] = defaultdict(list)
    limited: dict[str, list[Rate]] = {}
    for pattern in grid.patterns:
        await _load(stage, (stage.bare, stage.first), kernel, size, pattern)
        limited[pattern] = [rate async for rate in _in_turns(stage, alone[pattern], grid)]
    middles = {pattern: middle(rates) for pattern, rates in alone.items()}
    full = max(middles.values(), key=lambda rate: rate.kernels / (rate.clock or 1))
    for pattern, rates in limited.items():
        shares = _shares(grid.promises, rates, middles[pattern], full)
        yield finding(f"{kernel.text}, {pattern}", shares)
    for pattern in grid.pairs:
        await _load(stage, (stage.first, stage.second), kernel, size, pattern)
        shares = _shares(TOGETHER, await _together(stage, grid), middles[pattern], full)
        yield finding(f"{kernel.text}, {pattern}, two tenants", shares)


def _shares(promises: Sequence[int], rates: Sequence[Rate], alone: Rate, full: Rate) -> list[Share]:
    pairs = zip(promises, rates, strict=True)
    return [share(promise, rate, alone, full) for promise, rate in pairs]


async def _load(
    stage: Stage, players: Sequence[Player], kernel: Kernel, size: int, pattern: str
) -> None:
    for one in players:
        await one.tell("load", size=size, pattern=pattern, kernels=kernel.unit(pattern))


async def _in_turns(stage: Stage, alone: list[Rate], grid: Grid) -> AsyncIterator[Rate]:
    """The limited rates; those without the shim, before and after each second one, into `alone`."""
    for number, promise in enumerate(grid.promises):
        if number % 2 == 0:
            alone.append(await _bare(stage))
        if stage.first.room is not None:
            await stage.place.change(stage.first.room, promise)
        yield await rate_of(stage.clock, stage.first, grid.settle, grid.window)
    alone.append(await _bare(stage))


async def _bare(stage: Stage) -> Rate:
    return await rate_of(stage.clock, stage.bare, BARE_SETTLE, BARE_WINDOW)


async def _together(stage: Stage, grid: Grid) -> list[Rate]:
    tenants = (stage.first, stage.second)
    for tenant, promise in zip(tenants, TOGETHER, strict=True):
        if tenant.room is not None:
            await stage.place.change(tenant.room, promise)
    windows = (rate_of(stage.clock, one, grid.settle, grid.window, TAIL) for one in tenants)
    return list(await asyncio.gather(*windows))


async def rate_of(
    clock: Clock, one: Player, settle: float, seconds: float, tail: float = 0.0
) -> Rate:
    """What a player did in a window; raises CheckFailed."""
    async with clock.watched() as seen:
        done = await one.tell("play", settle=settle, seconds=seconds, tail=tail)
    return Rate(done["kernels"] / done["seconds"], seen.mean)

"""How shares are measured: cases, windows, and what they are compared with.

Players stay alive over all cases: one without the shim, two in rooms, whose shares are changed as
they run. Alone they take turns, without the shim before, between and after, so that what the GPU
does meanwhile meets all; two tenants play at the same time. A kernel is so many rounds of work,
found on this GPU before anything else runs there.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from gpu_check.clock import Clock, opened
from gpu_check.outcome import Finding
from gpu_check.place import Place
from gpu_check.player import Player, player
from gpu_check.shares import Rate, finding, middle, share

SETTLE, WINDOW, TAIL = 1.0, 2.0, 0.5
"""Seconds: until a changed share holds; measured; played on while another one is still being
measured."""

BARE_SETTLE, BARE_WINDOW = 0.3, 0.7
WARM_UP: Final = 0.5
"""Until the GPU's clock is that of a busy one, and a framework has chosen its kernels."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """micros: how long one takes alone; None: it has that size, whatever it takes. batch: how many
    are waited for together.
    """

    text: str
    micros: int | None
    batch: int
    size: int = 0


@dataclass(frozen=True, slots=True)
class Grid:
    """What is measured: kernels, guarantees in turn, and guarantees of two tenants at a time."""

    kernels: tuple[Kernel, ...]
    guarantees: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    settle: float = SETTLE
    window: float = WINDOW


FULL: Final = Grid(
    (Kernel("50 us", 50, 100), Kernel("1 ms", 1000, 10)), (30, 70), ((30, 60), (30, 70))
)
TRAINING: Final = Grid((Kernel("training", None, 1, 4096),), (), ((30, 60),), window=4.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """The players, and the clock they are watched by."""

    place: Place
    clock: Clock
    bare: Player
    tenants: tuple[Player, Player]


async def measure(place: Place, engine: str, grid: Grid = FULL) -> AsyncIterator[Finding]:
    """A finding for each kernel alone, and for each pair of tenants; raises CheckFailed."""
    async with prepared(place, engine) as setting:
        for kernel in grid.kernels:
            size = kernel.size
            if kernel.micros is not None:
                calibrated = await setting.bare.tell("calibrate", micros=kernel.micros)
                size = int(calibrated["size"])
            for one in (setting.bare, *setting.tenants):
                await one.load(size, kernel.batch)
            async for found in _of_kernel(setting, kernel, grid):
                yield found


@asynccontextmanager
async def prepared(place: Place, engine: str) -> AsyncIterator[Setting]:
    async with AsyncExitStack() as stack:
        rooms = [await place.limit(30, room=name) for name in ("a", "b")]
        bare, first, second = await asyncio.gather(
            *(stack.enter_async_context(player(place, engine, room)) for room in (None, *rooms))
        )
        clock = await stack.enter_async_context(opened(place.machine.gpu))
        yield Setting(place, clock, bare, (first, second))


async def _of_kernel(setting: Setting, kernel: Kernel, grid: Grid) -> AsyncIterator[Finding]:
    await setting.bare.tell("play", settle=WARM_UP, seconds=0.1, tail=0.0)
    bare = [await _bare(setting)]
    rates: list[Rate] = []
    for guarantee in grid.guarantees:
        rates.append(*await _limited(setting, (guarantee,), grid))
        bare.append(await _bare(setting))
    full = middle(bare)
    alone = [
        share(guarantee, rate, full) for guarantee, rate in zip(grid.guarantees, rates, strict=True)
    ]
    if alone:
        yield finding(kernel.text, alone)
    for pair in grid.pairs:
        together = await _limited(setting, pair, grid)
        shares = [
            share(guarantee, rate, full) for guarantee, rate in zip(pair, together, strict=True)
        ]
        yield finding(f"{kernel.text}, two tenants", shares, together=True)


async def _bare(setting: Setting) -> Rate:
    return await rate_of(setting.clock, setting.bare, BARE_SETTLE, BARE_WINDOW)


async def _limited(setting: Setting, guarantees: Sequence[int], grid: Grid) -> list[Rate]:
    """As many tenants at the same time."""
    tenants = setting.tenants[: len(guarantees)]
    for tenant, guarantee in zip(tenants, guarantees, strict=True):
        if tenant.room is not None:
            await setting.place.change(tenant.room, guarantee)
    tail = TAIL if len(tenants) > 1 else 0.0
    windows = (rate_of(setting.clock, one, grid.settle, grid.window, tail) for one in tenants)
    return list(await asyncio.gather(*windows))


async def rate_of(
    clock: Clock, one: Player, settle: float, seconds: float, tail: float = 0.0
) -> Rate:
    """What a player did in a window; raises CheckFailed."""
    async with clock.watched() as seen:
        done = await one.tell("play", settle=settle, seconds=seconds, tail=tail)
    return Rate(done["kernels"] / done["seconds"], seen.mean)

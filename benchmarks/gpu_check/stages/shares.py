"""Shares of the GPU's time: kernels of so many rounds, alone and beside another tenant's."""

from collections.abc import AsyncIterator
from typing import Final

from gpu_check import judge, rates
from gpu_check.bench import Bench
from gpu_check.clock import opened
from gpu_check.conductor import Check
from gpu_check.outcome import Finding


async def nobody_else(bench: Bench) -> AsyncIterator[Finding]:
    place = await bench.place()
    async with opened(place.machine.gpu) as clock:
        yield judge.idle(*await clock.others())


async def shares(bench: Bench) -> AsyncIterator[Finding]:
    async for finding in rates.measure(await bench.place(), "driver"):
        yield finding


CHECKS: Final = (
    Check("nobody else", 10, nobody_else),
    Check("share", 60, shares),
)

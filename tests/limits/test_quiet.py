"""A node on which no container does anything is looked at rarely, and wakes at the first move."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.ids import AllocationID
from gpumanager.limits import manager, overhead
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, MIB, Bytes
from tests.limits.container_process import eventually
from tests.limits.metered_manager import Manage
from tests.limits.overhead.measured import GPU, NAME, Driver, Process
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.overhead.measured_fixtures"]

SHARE = Limit(GPU, Bytes(GIB), 30, 30)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager, "QUIET_TICK_SECONDS", 0.02)


@asynccontextmanager
async def running(
    manage: Manage, measure_seconds: float = 0.01, **options: Any
) -> AsyncIterator[Process]:
    """A container with a process, and the tasks of its manager."""
    manager = manage(quiet_seconds=0.1, **options)
    process = Process(manager, await manager.open(NAME, [SHARE]))
    await process.attach()
    measuring = manager.measure_every(measure_seconds)
    tasks = [
        asyncio.create_task(one)
        for one in (manager.share_every(0.01, sample_seconds=0.01), measuring)
    ]
    try:
        yield process
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def launch(process: Process) -> None:
    process.books.meters[0].launches += 1


def wait_at_the_limit(process: Process) -> None:
    process.books.meters[0].throttled_ns += 1


def degrade(process: Process) -> None:
    process.books.slots[process.slot].flags |= lib.VCUDA_DEGRADED_MEASURE


def work_outside_of_turns(process: Process) -> None:
    now = time.monotonic_ns()
    sample = ProcessSample(os.getppid(), now, 50)
    process.manager.share_now(now, {GPU: GpuUtilization(now, (sample,))})


MOVES = [launch, wait_at_the_limit, Process.move_memory, degrade]


@pytest.mark.parametrize("move", MOVES)
async def test_a_quiet_node_wakes_when_a_container_moves(
    manage: Manage, move: Callable[[Process], None]
) -> None:
    async with running(manage) as process:
        assert not process.manager.quiet
        assert await eventually(lambda: process.manager.quiet)

        move(process)

        assert await eventually(lambda: not process.manager.quiet)
        assert await eventually(lambda: process.manager.quiet)


async def test_a_quiet_node_wakes_when_a_container_comes_and_when_somebody_works_outside_of_turns(
    manage: Manage,
) -> None:
    async with running(manage) as process:
        assert await eventually(lambda: process.manager.quiet)
        await process.manager.open(AllocationID("a2"), [SHARE])
        assert await eventually(lambda: not process.manager.quiet)
        assert await eventually(lambda: process.manager.quiet)

        work_outside_of_turns(process)

        assert await eventually(lambda: not process.manager.quiet)


async def test_memory_that_moves_after_a_quiet_time_is_measured(manage: Manage, pid: int) -> None:
    driver = Driver()
    driver.held[GPU][pid] = Bytes(MIB)
    async with running(manage, meter=driver) as process:
        assert await eventually(lambda: process.manager.quiet)
        driver.held[GPU][pid] = Bytes(5 * MIB)

        process.move_memory()

        assert await eventually(lambda: process.overhead == 5 * MIB)


async def test_what_becomes_due_before_a_quiet_time_is_measured(
    manage: Manage, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch is measured some seconds later, and passes may be further apart than that."""
    monkeypatch.setattr(overhead, "LAUNCHED_SECONDS", 0.02)
    driver = Driver()
    driver.held[GPU][pid] = Bytes(MIB)
    async with running(manage, measure_seconds=0.25, meter=driver) as process:
        assert await eventually(lambda: process.overhead == MIB)
        driver.held[GPU][pid] = Bytes(5 * MIB)
        launch(process)

        assert await eventually(lambda: process.overhead == 5 * MIB)

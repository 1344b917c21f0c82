"""A node on which no container does anything is looked at rarely, and wakes at the first move."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.ids import AllocationID
from gpumanager.limits import overhead
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, MIB, Bytes
from tests.limits.container_process import eventually
from tests.limits.open_door import virtual_manager
from tests.limits.overhead.measured import GPU, NAME, Driver, Process
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.overhead.measured_fixtures"]


@asynccontextmanager
async def running(root: Path, **options: Any) -> AsyncIterator[Process]:
    """A container with a process, and the tasks of its manager."""
    manager = virtual_manager(root, quiet_seconds=0.1, **options)
    process = Process(manager, await manager.open(NAME, [Limit(GPU, Bytes(GIB), 30, 30)]))
    await process.attach()
    tasks = [
        asyncio.create_task(one)
        for one in (manager.share_every(0.01, sample_seconds=0.01), manager.measure_every(0.01))
    ]
    try:
        yield process
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await manager.stop()


def launch(process: Process) -> None:
    process.books.meters[0].launches += 1


def wait_at_the_limit(process: Process) -> None:
    process.books.meters[0].throttled_ns += 1


def move_memory(process: Process) -> None:
    process.books.activity[process.slot] += lib.VCUDA_ACTIVITY_BEGUN


def degrade(process: Process) -> None:
    process.books.slots[process.slot].flags |= lib.VCUDA_DEGRADED_MEASURE


@pytest.mark.parametrize("move", [launch, wait_at_the_limit, move_memory, degrade])
async def test_a_quiet_node_wakes_when_a_container_moves(
    root: Path, move: Callable[[Process], None]
) -> None:
    async with running(root) as process:
        assert not process.manager.quiet
        assert await eventually(lambda: process.manager.quiet)

        move(process)

        assert await eventually(lambda: not process.manager.quiet)
        assert await eventually(lambda: process.manager.quiet)


async def test_a_quiet_node_wakes_when_a_process_comes(root: Path) -> None:
    async with running(root) as process:
        assert await eventually(lambda: process.manager.quiet)

        await process.manager.open(AllocationID("a2"), [Limit(GPU, Bytes(GIB), 30, 30)])

        assert await eventually(lambda: not process.manager.quiet)


async def test_memory_that_moves_after_a_quiet_time_is_measured(root: Path, pid: int) -> None:
    driver = Driver()
    driver.held[GPU][pid] = Bytes(MIB)
    async with running(root, meter=driver) as process:
        assert await eventually(lambda: process.manager.quiet)
        driver.held[GPU][pid] = Bytes(5 * MIB)

        move_memory(process)

        assert await eventually(lambda: process.overhead == 5 * MIB)


async def test_work_outside_of_turns_wakes_a_quiet_node(root: Path) -> None:
    async with running(root) as process:
        assert await eventually(lambda: process.manager.quiet)
        now = time.monotonic_ns()
        sample = ProcessSample(os.getppid(), now, 50)

        process.manager.share_now(now, {GPU: GpuUtilization(now, (sample,))})

        assert await eventually(lambda: not process.manager.quiet)


async def test_what_becomes_due_before_a_quiet_time_is_measured(
    root: Path, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch is measured some seconds later, and passes may be further apart than that."""
    monkeypatch.setattr(overhead, "LAUNCHED_SECONDS", 0.05)
    driver = Driver()
    driver.held[GPU][pid] = Bytes(MIB)
    manager = virtual_manager(root, quiet_seconds=0.2, meter=driver)
    process = Process(manager, await manager.open(NAME, [Limit(GPU, Bytes(GIB), 30, 30)]))
    await process.attach()
    share = asyncio.create_task(manager.share_every(0.01, sample_seconds=0.01))
    measure = asyncio.create_task(manager.measure_every(0.5))
    try:
        assert await eventually(lambda: process.overhead == MIB)
        driver.held[GPU][pid] = Bytes(5 * MIB)
        launch(process)

        assert await eventually(lambda: process.overhead == 5 * MIB)
    finally:
        for task in (share, measure):
            task.cancel()
        await asyncio.wait([share, measure])
        await manager.stop()

"""Samples of utilization: each is had once; a driver that hangs or fails costs little."""

import asyncio
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml_service import NvmlReader
from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from tests.limits.container_process import SECONDS, eventually
from tests.limits.metered_manager import nvml_of
from tests.limits.open_door import virtual_manager
from tests.limits.programs.hello_client import exchange, hello

pytest_plugins = ["tests.limits.virtual_fixtures"]

GPU = GpuUUID("GPU-00000000-0000-0000-0000-0000000000a0")


ALL = NvmlQuery(samples=frozenset({bare(GPU)}))


def reader_of(driver: "Driver", seconds: float = SECONDS) -> NvmlReader:
    nvml = nvml_of(utilization=driver, apart_seconds=0)
    return NvmlReader(nvml, "cannot read the GPU utilization of processes", seconds)


class Driver:
    """UtilizationByGpu what it is told to, from a thread."""

    def __init__(self) -> None:
        self.passes = 0
        self.meanwhile = threading.Event()
        self.meanwhile.set()
        self.broken = False

    def __call__(self, gpus: Collection[GpuUUID]) -> UtilizationByGpu:
        self.passes += 1
        self.asked_about = frozenset(gpus)
        number = self.passes
        self.meanwhile.wait(SECONDS)
        if self.broken:
            raise GpuManagerError("no driver")
        return {GPU: GpuUtilization(number, (ProcessSample(number, number, 50),))}


def pids(answers: UtilizationByGpu) -> list[int]:
    return [sample.pid for answer in answers.values() for sample in answer.samples or ()]


async def test_what_was_sampled_waits_until_it_is_taken_and_is_taken_once() -> None:
    reader = reader_of(Driver())
    await reader.read(ALL)
    await reader.read(ALL)

    assert pids(reader.take_samples()) == [1, 2]
    assert reader.take_samples() == {}


async def test_a_driver_that_hangs_costs_its_bound_and_its_answer_is_not_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = Driver()
    driver.meanwhile.clear()
    reader = reader_of(driver, 0.5)

    await reader.read(ALL)
    await reader.read(ALL)
    assert (driver.passes, reader.take_samples()) == (1, {})
    assert caplog.text.count("utilization of processes: no answer in time") == 1

    driver.meanwhile.set()
    while not (found := reader.take_samples()):
        await reader.read(ALL)
    assert pids(found)[0] == 1


async def test_a_broken_driver_is_complained_of_once_until_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = Driver()
    reader = reader_of(driver)
    driver.broken = True
    for _ in range(3):
        await reader.read(ALL)
    assert caplog.text.count("utilization of processes: no driver") == 1

    driver.broken = False
    await reader.read(ALL)
    driver.broken = True
    await reader.read(ALL)

    assert caplog.text.count("utilization of processes: no driver") == 2


async def test_sharing_goes_on_by_itself_and_samples_only_while_there_is_a_process(
    root: Path,
) -> None:
    driver = Driver()
    manager = virtual_manager(root, utilization=driver)
    directory = await manager.open(AllocationID("a"), [Limit(GPU, Bytes(GIB), 30, 80)])
    sharing = asyncio.create_task(manager.share_every(0.01, sample_seconds=0.01))

    await asyncio.sleep(0.1)
    assert driver.passes == 0

    answer = await asyncio.to_thread(exchange, directory / "vcuda.sock", hello())
    assert answer is not None

    assert await eventually(lambda: driver.passes > 1)
    sharing.cancel()
    await manager.stop()
    answer.close()


async def test_no_thread_is_left_when_the_manager_has_stopped(root: Path) -> None:
    asked: dict[str, threading.Thread] = {}

    def ask(what: str) -> Callable[[object], dict[GpuUUID, Any]]:
        return lambda _: asked.update({what: threading.current_thread()}) or {}

    manager = virtual_manager(root, meter=ask("held"), utilization=ask("busy"))
    directory = await manager.open(AllocationID("a"), [Limit(GPU, Bytes(GIB), 30, 80)])
    answer = await asyncio.to_thread(exchange, directory / "vcuda.sock", hello())
    work = [asyncio.create_task(one) for one in (manager.share_every(1), manager.measure_every(1))]
    assert await eventually(lambda: asked.keys() == {"held", "busy"})

    for one in work:
        one.cancel()
    await asyncio.wait(work)
    await manager.stop()

    assert await eventually(lambda: not any(thread.is_alive() for thread in asked.values()))
    assert answer is not None
    answer.close()

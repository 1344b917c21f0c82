"""Samples of utilization: each is had once; a driver that hangs or fails costs little."""

import asyncio
import threading
from collections.abc import Callable, Collection
from typing import Any

import pytest

from gpumanager.gpu.nvml_service import NvmlReader
from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample, UtilizationByGpu
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, Bytes
from tests.limits.container_process import SECONDS, eventually
from tests.limits.metered_manager import Manage, nvml_of
from tests.limits.overhead.measured import GPU, OTHER, Process

pytest_plugins = ["tests.limits.virtual_fixtures"]

ALL = NvmlQuery(samples=frozenset({bare(GPU)}))


def reader_of(driver: "Driver", seconds: float = SECONDS) -> NvmlReader:
    nvml = nvml_of(utilization=driver, apart_seconds=0)
    return NvmlReader(nvml, "cannot read the GPU utilization of processes", seconds)


class Driver:
    """Names a process in each pass, after `go`, from a thread."""

    def __init__(self) -> None:
        self.asked_about: list[frozenset[GpuUUID]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, gpus: Collection[GpuUUID]) -> UtilizationByGpu:
        self.asked_about.append(frozenset(gpus))
        number = len(self.asked_about)
        self.go.wait(SECONDS)
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
    driver.go.clear()
    reader = reader_of(driver, 0.05)

    assert [await reader.read(ALL) for _ in range(3)] == [None] * 3
    assert (len(driver.asked_about), reader.take_samples()) == (1, {})
    assert caplog.text.count("utilization of processes: no answer in time") == 1

    driver.go.set()
    while not (found := reader.take_samples()):
        await reader.read(ALL)
    assert pids(found)[0] == 1


async def test_gpus_whose_time_is_shared_are_sampled_while_they_have_a_process(
    manage: Manage,
) -> None:
    driver = Driver()
    manager = manage(utilization=driver)
    limits = [Limit(GPU, Bytes(GIB), 30, 80), Limit(OTHER, Bytes(GIB), 100, 100)]
    process = Process(manager, await manager.open(AllocationID("a"), limits))
    sharing = asyncio.create_task(manager.share_every(0, sample_seconds=0))

    for _ in range(20):  # looks
        await asyncio.sleep(0)
    assert driver.asked_about == []
    await process.attach()

    assert await eventually(lambda: len(driver.asked_about) > 1)
    assert set(driver.asked_about) == {ALL.samples}
    sharing.cancel()


async def test_no_thread_is_left_when_the_manager_has_stopped(manage: Manage) -> None:
    asked: dict[str, threading.Thread] = {}

    def ask(what: str) -> Callable[[object], dict[GpuUUID, Any]]:
        return lambda _: asked.update({what: threading.current_thread()}) or {}

    manager = manage(meter=ask("held"), utilization=ask("busy"))
    limits = [Limit(GPU, Bytes(GIB), 30, 80)]
    await Process(manager, await manager.open(AllocationID("a"), limits)).attach()
    work = [asyncio.create_task(one) for one in (manager.share_every(1), manager.measure_every(1))]
    assert await eventually(lambda: asked.keys() == {"held", "busy"})

    for one in work:
        one.cancel()
    await asyncio.wait(work)
    await manager.stop()

    assert await eventually(lambda: not any(thread.is_alive() for thread in asked.values()))

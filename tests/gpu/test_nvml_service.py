"""One thread asks NVML for everybody: passes are shared, and no hang lasts for all."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_service import NvmlReader, NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery, NvmlReading
from gpumanager.gpu.values import GpuUUID
from gpumanager.sim.in_memory import ManualClock
from tests.gpu.nvml_answers import answers

BOUND = 120.0
FIRST, SECOND = GpuUUID("GPU-0"), GpuUUID("GPU-1")
EVERYTHING = NvmlQuery(processes=None)


class Driver:
    """Answers nothing, after `go`. asked: in which thread, and what."""

    def __init__(self) -> None:
        self.asked: list[tuple[threading.Thread, NvmlQuery]] = []
        self.go, self.begun = threading.Event(), threading.Semaphore(0)
        self.go.set()

    def __call__(self, query: NvmlQuery) -> NvmlReading:
        self.asked.append((threading.current_thread(), query))
        self.begun.release()
        self.go.wait(BOUND)
        return NvmlReading()


def hang_at(gpu: GpuUUID, patch: pytest.MonkeyPatch) -> threading.Event:
    """That GPU answers no question about its processes until the event is set."""
    go = threading.Event()

    def running(handle: str) -> list[SimpleNamespace]:
        if handle == gpu:
            go.wait(BOUND)
        return [SimpleNamespace(pid=7, usedGpuMemory=1)]

    answers(patch, DeviceGetComputeRunningProcesses=running)
    return go


async def test_who_waits_for_the_next_pass_shares_it() -> None:
    driver = Driver()
    nvml = NvmlService(driver)
    wanted = [
        NvmlQuery(processes=frozenset({GpuUUID("a")})),
        NvmlQuery(processes=frozenset({GpuUUID("b")}), samples=frozenset({GpuUUID("b")})),
        NvmlQuery(status=True),
    ]

    await asyncio.gather(*map(nvml.read, wanted))

    (_, asked), both = *driver.asked, frozenset({GpuUUID("a"), GpuUUID("b")})
    assert asked == NvmlQuery(status=True, processes=both, samples=frozenset({GpuUUID("b")}))
    assert (asked | EVERYTHING).processes is None


async def test_passes_and_single_questions_come_one_after_another() -> None:
    driver = Driver()
    nvml = NvmlService(driver, apart_seconds=0)
    driver.go.clear()
    reading = nvml.read(EVERYTHING)
    assert await asyncio.to_thread(driver.begun.acquire)

    asking = asyncio.create_task(nvml.ask(threading.current_thread, BOUND))
    await asyncio.sleep(0)
    assert not asking.done()
    driver.go.set()
    await reading

    assert (await asking).name == driver.asked[0][0].name == "nvml"


async def test_a_gpu_that_hangs_is_left_out_until_it_answers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go = hang_at(FIRST, monkeypatch)
    nvml = NvmlService(apart_seconds=0, stuck_seconds=0.2)
    stuck = nvml.read(EVERYTHING)
    await asyncio.wait((stuck,), timeout=0.1)

    reading = await asyncio.wait_for(nvml.read(EVERYTHING), BOUND)
    assert (reading.complete, reading.held) == (False, {SECOND: {7: 1}})
    assert (await asyncio.wait_for(nvml.read(EVERYTHING), BOUND)).complete is False
    assert caplog.text.count("GPU 0 does not answer NVML") == 1

    go.set()
    await stuck
    reading = await nvml.read(EVERYTHING)
    assert (reading.complete, set(reading.held)) == (True, {FIRST, SECOND})


async def test_a_single_question_that_hangs_is_left_behind() -> None:
    go = threading.Event()
    nvml = NvmlService(Driver(), apart_seconds=0, stuck_seconds=0.2)

    with pytest.raises(NvmlError, match="does not answer"):
        await nvml.ask(lambda: go.wait(BOUND), seconds=0.01)

    assert await asyncio.wait_for(nvml.read(EVERYTHING), BOUND)
    go.set()


async def test_a_library_that_hangs_as_a_whole_is_asked_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go, counted = threading.Event(), []

    def count() -> int:
        counted.append(1)
        go.wait(BOUND)
        return 2

    answers(monkeypatch, DeviceGetCount=count)
    reader = NvmlReader(NvmlService(apart_seconds=0, stuck_seconds=0.01), "no figures", 0.1)

    assert [await reader.read(EVERYTHING) for _ in range(3)] == [None] * 3

    assert len(counted) == 1
    go.set()


async def test_a_late_answer_serves_the_next_reading_of_a_reader_that_wants_it() -> None:
    driver = Driver()
    driver.go.clear()
    reader = NvmlReader(NvmlService(driver, apart_seconds=0), "no figures", 0.05, late=True)
    assert await reader.read(EVERYTHING) is None
    assert await asyncio.to_thread(driver.begun.acquire)

    driver.go.set()
    while await reader.read(NvmlQuery(status=True)) is None:
        pass

    assert [query for _, query in driver.asked] == [EVERYTHING]


async def test_nvml_is_left_alone_while_a_reader_waits_for_something() -> None:
    driver, reasons = Driver(), ["no GPU yet"]
    reader = NvmlReader(NvmlService(driver), "no figures", BOUND, waiting_for=lambda: reasons[0])

    assert await reader.read(EVERYTHING) is None
    assert (driver.asked, reader.failure) == ([], "no GPU yet")

    reasons[0] = ""
    assert await reader.read(EVERYTHING) is not None


async def test_a_slow_pass_is_followed_by_a_longer_pause() -> None:
    clock = ManualClock()

    def driver(_: NvmlQuery) -> NvmlReading:
        clock.now += 0.02
        return NvmlReading()

    nvml = NvmlService(driver, apart_seconds=0, clock=clock)
    reader = NvmlReader(nvml, "no figures", BOUND)
    await reader.read(EVERYTHING)

    assert reader.interval(0.5) == pytest.approx(2.0)


async def test_a_driver_that_fails_is_complained_of_once(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: NvmlQuery) -> NvmlReading:
        raise GpuManagerError("no driver")

    reader = NvmlReader(NvmlService(broken, apart_seconds=0), "no figures", BOUND)

    assert [await reader.read(EVERYTHING) for _ in range(3)] == [None] * 3
    assert caplog.text.count("no figures: no driver") == 1

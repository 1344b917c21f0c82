"""How often NVML is asked: it takes locks that programs on the GPU wait for."""

import asyncio
import errno
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from gpumanager.gpu.nvml_service import APART_SECONDS, LONGEST_SECONDS, MOST_OF_TIME, poll_interval
from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.usage.samples import UtilizationByGpu
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.ids import AllocationID
from gpumanager.limits.allocation import MEASURING_TRIES
from gpumanager.limits.overhead import LAUNCHED_SECONDS, OverheadMark, OverheadSnapshot
from gpumanager.limits.pages.slot_table import TakenSlot
from gpumanager.limits.processes import Process as Owner
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, MIB, Bytes
from tests.limits.metered_manager import nvml_of
from tests.limits.open_door import virtual_manager
from tests.limits.overhead.measured import GPU, NAME, OTHER, Driver, Process
from tests.waiting import until
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.overhead.measured_fixtures"]

ALL = frozenset({bare(GPU)})
COMPILING = lib.VCUDA_ACTIVITY_BEGUN + 1
"""Activity of a process that has begun one call, which is under way."""


async def test_while_nothing_moves_no_pass_is_taken(process: Process, driver: Driver) -> None:
    for _ in range(20):
        await process.manager.measure()

    assert driver.passes == 1


async def test_after_memory_has_moved_one_pass_is_taken(
    process: Process, driver: Driver, pid: int
) -> None:
    await process.manager.measure()
    process.books.activity[process.slot] += lib.VCUDA_ACTIVITY_BEGUN
    driver.held[GPU][pid] = Bytes(5 * MIB)

    for _ in range(20):
        await process.manager.measure()

    assert driver.passes == 2
    assert process.overhead == 5 * MIB


async def test_what_could_not_be_entered_is_measured_again(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(5 * MIB)

    def move() -> None:
        process.books.activity[process.slot] += lib.VCUDA_ACTIVITY_BEGUN
        driver.meanwhile = lambda: None

    driver.meanwhile = move

    for _ in range(20):
        await process.manager.measure()

    assert driver.passes == 2
    assert process.overhead == 5 * MIB


async def test_a_pass_that_fails_is_taken_again(process: Process, driver: Driver) -> None:
    driver.broken = True
    await process.manager.measure()
    driver.broken = False

    for _ in range(20):
        await process.manager.measure()

    assert driver.passes == 2


async def test_a_process_in_the_middle_of_a_call_takes_no_pass(
    process: Process, driver: Driver
) -> None:
    process.books.activity[process.slot] = COMPILING

    assert await process.measure() == -errno.EBUSY
    await process.manager.measure()

    assert driver.passes == 0


async def test_what_a_dead_process_exported_is_charged_until_all_others_are_measured(
    process: Process, driver: Driver, pid: int
) -> None:
    served, dead = process.manager._served[NAME], Owner(2**22 - 1, 1)
    slot = served.books.claim(dead)
    assert slot is not None
    served._slots._taken[dead] = TakenSlot(slot, 0)
    process.books.used[0][slot] = 9 * MIB
    process.books.pending[lib.VCUDA_BESIDE][slot] = 5 * MIB
    driver.held[GPU][pid] = Bytes(5 * MIB)

    def held() -> int:
        return process.manager.usage(NAME).devices[0].held

    def move() -> None:
        process.books.activity[process.slot] += lib.VCUDA_ACTIVITY_BEGUN
        driver.meanwhile = lambda: None

    served._slots.leave(dead)
    assert held() == 5 * MIB
    driver.meanwhile = move
    await process.manager.measure()
    assert (held(), process.overhead) == (5 * MIB, 0)
    await process.manager.measure()
    assert (held(), process.overhead) == (5 * MIB, 5 * MIB)

    assert served.snapshot().exited == ()
    assert process.books.slots[slot].pid == 0


async def test_a_call_that_ends_soon_is_waited_for(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(5 * MIB)
    process.books.activity[process.slot] = COMPILING
    asked = asyncio.create_task(process.measure())
    manager = process.manager
    served = manager._served[NAME]
    looks = 0
    mark = served._overheads.mark

    def look(slot: int) -> OverheadMark:
        nonlocal looks
        looks += 1
        found = mark(slot)
        process.books.activity[process.slot] = lib.VCUDA_ACTIVITY_BEGUN
        return found

    served._overheads.mark = look  # type: ignore[method-assign]

    assert await asked == 0
    assert (looks, driver.passes) == (2, 1)
    assert looks <= MEASURING_TRIES


async def test_those_who_ask_within_a_moment_share_a_pass(driver: Driver) -> None:
    begun: list[float] = []
    driver.meanwhile = lambda: begun.append(time.monotonic())
    nvml = nvml_of(driver, apart_seconds=0.2)
    await nvml.read(NvmlQuery(processes=ALL))

    async def late(number: int) -> None:
        await asyncio.sleep(number / 1000)
        await nvml.read(NvmlQuery(processes=ALL))

    await asyncio.gather(*(late(number) for number in range(20)))

    asked_within = begun[1] - begun[0]
    assert asked_within >= 0.19  # a timer of the loop may be a little early
    assert driver.passes <= 3  # a busy machine may let some of them ask after the second


def test_passes_are_apart_by_a_twentieth_of_a_second() -> None:
    assert pytest.approx(0.05) == APART_SECONDS


async def test_a_pass_asks_about_the_gpus_of_all_who_share_it(driver: Driver) -> None:
    nvml = nvml_of(driver)
    first, other = NvmlQuery(processes=ALL), NvmlQuery(processes=frozenset({bare(OTHER)}))
    await asyncio.gather(nvml.read(first), nvml.read(other))
    await nvml.read(other)

    assert driver.asked_about == [{bare(GPU), bare(OTHER)}, {bare(OTHER)}]


async def test_only_gpus_of_containers_with_processes_are_asked_about(
    root: Path, process: Process, driver: Driver
) -> None:
    idle = [Limit(OTHER, Bytes(GIB), 50, 50)]
    await process.manager.open(AllocationID("idle"), idle)

    await process.manager.measure()

    assert driver.asked_about == [ALL]


@pytest.mark.parametrize(
    ("cost", "seconds"), [(0.0, 0.5), (0.004, 0.5), (0.02, 2.0), (10.0, LONGEST_SECONDS)]
)
def test_a_hundredth_of_the_time_passes_in_the_driver_at_most(cost: float, seconds: float) -> None:
    assert poll_interval(0.5, cost) == pytest.approx(seconds)
    assert cost / poll_interval(0.5, cost) <= MOST_OF_TIME or seconds == LONGEST_SECONDS


def snapshot(
    at: float, activity: int, launches: int = 0, exited: tuple[Owner, ...] = ()
) -> OverheadSnapshot:
    return OverheadSnapshot(at, {Owner(1, 1): OverheadMark(activity, ())}, exited, launches)


@pytest.mark.parametrize(
    ("later", "stale"),
    [
        (snapshot(60.0, 1), False),
        (snapshot(0.1, 2), True),
        (snapshot(LAUNCHED_SECONDS - 0.1, 1, 9), False),
        (snapshot(LAUNCHED_SECONDS, 1, 9), True),
        (snapshot(0.1, 1, exited=(Owner(2, 2),)), True),
        (OverheadSnapshot(0.1, {}, (Owner(2, 2),), 9), False),
    ],
    ids=[
        "nothing happened",
        "memory moved",
        "launches, just now",
        "launches, a while ago",
        "a process died that had shared memory",
        "nobody can be measured",
    ],
)
def test_when_a_measurement_is_stale(later: OverheadSnapshot, *, stale: bool) -> None:
    assert later.has_news(snapshot(0.0, 1)) == stale
    assert later.has_news(None) == bool(later.marks)


async def test_utilization_is_asked_of_gpus_whose_time_is_shared(root: Path) -> None:
    asked: list[frozenset[GpuUUID]] = []

    def utilization(gpus: Collection[GpuUUID]) -> UtilizationByGpu:
        asked.append(frozenset(gpus))
        return {}

    manager = virtual_manager(root, utilization=utilization)
    limits = [Limit(GPU, Bytes(GIB), 50, 50), Limit(OTHER, Bytes(GIB), 100, 100)]
    process = Process(manager, await manager.open(NAME, limits))
    sharing = asyncio.create_task(manager.share_every(0.01, sample_seconds=0.01))
    await asyncio.sleep(0.1)
    before = list(asked)
    await process.attach()
    await until(lambda: asked)
    sharing.cancel()

    assert (before, asked[0]) == ([], ALL)
    await manager.stop()

"""How often NVML is asked: it takes locks that programs on the GPU wait for."""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpumanager.gpu.nvml_service import LONGEST_SECONDS, MOST_OF_TIME, poll_interval
from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.values import bare
from gpumanager.ids import AllocationID
from gpumanager.limits.allocation import MEASURING_TRIES
from gpumanager.limits.overhead import LAUNCHED_SECONDS, OverheadMark, OverheadSnapshot
from gpumanager.limits.pages.slot_table import TakenSlot
from gpumanager.limits.processes import Process as Owner
from gpumanager.sim.in_memory import ManualClock
from gpumanager.units import MIB, Bytes
from tests.limits.metered_manager import nvml_of
from tests.limits.overhead.measured import GPU, NAME, OTHER, WHOLE, Driver, Process
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.overhead.measured_fixtures"]

ALL = frozenset({bare(GPU)})
COMPILING = lib.VCUDA_ACTIVITY_BEGUN + 1
"""Activity of a process that has begun one call, which is under way."""


def once(driver: Driver, act: Callable[[], None]) -> Callable[[], None]:
    """During one pass alone."""

    def meanwhile() -> None:
        driver.meanwhile = lambda: None
        act()

    return meanwhile


async def measured_often(process: Process, driver: Driver) -> int:
    """How many passes that takes."""
    before = driver.passes
    for _ in range(20):
        await process.manager.measure()
    return driver.passes - before


async def test_a_pass_is_taken_where_memory_has_moved_and_no_other(
    process: Process, driver: Driver, pid: int
) -> None:
    assert await measured_often(process, driver) == 1
    process.move_memory()
    driver.held[GPU][pid] = Bytes(5 * MIB)

    assert await measured_often(process, driver) == 1
    assert process.overhead == 5 * MIB


async def test_what_could_not_be_entered_is_measured_again(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(5 * MIB)
    driver.meanwhile = once(driver, process.move_memory)

    assert await measured_often(process, driver) == 2
    assert process.overhead == 5 * MIB


async def test_a_pass_that_fails_is_taken_again(process: Process, driver: Driver) -> None:
    driver.broken = True
    await process.manager.measure()
    driver.broken = False

    assert await measured_often(process, driver) == 1


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

    served._slots.leave(dead)
    assert held() == 5 * MIB
    driver.meanwhile = once(driver, process.move_memory)
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


@pytest.mark.parametrize(("later", "passes"), [(0, 1), (3599, 1), (3600, 2)])
async def test_passes_are_apart(driver: Driver, later: int, passes: int) -> None:
    clock = ManualClock()
    nvml = nvml_of(driver, apart_seconds=3600, clock=clock)
    await nvml.read(NvmlQuery(processes=ALL))
    clock.now += later

    waiting = nvml.read(NvmlQuery(processes=ALL))
    for _ in range(5):
        await asyncio.sleep(0)
    await nvml.ask(lambda: None)  # in its turn: after the pass, if that has begun

    assert driver.passes == passes
    waiting.cancel()


async def test_a_pass_asks_about_the_gpus_of_all_who_share_it_and_no_later_one(
    driver: Driver,
) -> None:
    nvml = nvml_of(driver)
    first, other = NvmlQuery(processes=ALL), NvmlQuery(processes=frozenset({bare(OTHER)}))
    await asyncio.gather(nvml.read(first), nvml.read(other))
    await nvml.read(other)

    assert driver.asked_about == [{bare(GPU), bare(OTHER)}, {bare(OTHER)}]


async def test_only_gpus_of_containers_with_processes_are_asked_about(
    process: Process, driver: Driver
) -> None:
    await process.manager.open(AllocationID("idle"), [replace(WHOLE, gpu=OTHER)])

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

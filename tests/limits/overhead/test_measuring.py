"""What the driver holds, entered into the books by the manager: nothing racy, nothing guessed."""

import asyncio
import errno
import os
import threading

import pytest

from gpumanager.gpu.usage.nvml_pass import NvmlQuery
from gpumanager.gpu.values import GpuUUID, bare
from gpumanager.limits.overhead import ASSUMED
from gpumanager.units import MIB, Bytes
from tests.limits.container_process import SECONDS, StartProcess, eventually
from tests.limits.metered_manager import Manage, nvml_of
from tests.limits.overhead.measured import GPU, MEASURE, Driver, Process
from tests.limits.programs.hello_client import connect, receive
from vcuda_shim._shim import lib

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.overhead.measured_fixtures"]

ALL = NvmlQuery(processes=frozenset({bare(GPU)}))


@pytest.mark.parametrize(
    ("held", "used", "overhead"),
    [
        pytest.param(300, 100, 200, id="what is held beyond what is used is overhead"),
        pytest.param(1, 100, 0, id="less than what is used is no overhead"),
    ],
)
async def test_a_measurement_is_entered(
    process: Process, driver: Driver, held: int, used: int, overhead: int
) -> None:
    driver.held[GPU][os.getpid()] = Bytes(held * MIB)
    process.books.used[0][process.slot] = used * MIB

    assert await process.measure() == 0

    assert process.overhead == overhead * MIB
    assert process.books.samples[process.slot] == 1


async def test_a_process_that_holds_nothing_any_more_has_no_overhead(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(MIB)
    assert await process.measure() == 0
    del driver.held[GPU][pid]

    assert await process.measure() == 0

    assert process.overhead == 0


@pytest.mark.parametrize("figure", ["none", "not listed", "no such gpu"])
async def test_what_the_driver_does_not_tell_leaves_what_was_known(
    process: Process, driver: Driver, pid: int, figure: str, caplog: pytest.LogCaptureFixture
) -> None:
    driver.held[GPU][pid] = Bytes(300 * MIB)
    assert await process.measure() == 0
    process.books.used[0][process.slot] = MIB
    if figure == "none":
        driver.held[GPU][pid] = None
    elif figure == "not listed":
        del driver.held[GPU][pid]
    else:
        del driver.held[GPU]

    assert [await process.measure() for _ in range(2)] == [-errno.ENODATA] * 2

    assert process.overhead == 300 * MIB
    assert process.books.samples[process.slot] == 1
    assert caplog.text.count("charged by estimate") == 1


async def test_a_process_that_was_never_listed_does_not_hold_nothing(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid + 1] = Bytes(300 * MIB)  # as another pid namespace calls it, perhaps

    assert await process.measure() == -errno.ENODATA

    assert process.books.samples[process.slot] == 0
    assert process.context_size() == ASSUMED


async def test_what_is_assumed_of_a_context_goes_when_one_is_measured(
    manage: Manage, process: Process, driver: Driver, pid: int
) -> None:
    await process.measure()
    await process.manager.stop()
    await Process.of(manage(meter=driver), seated=False)
    assert process.context_size() == ASSUMED
    driver.held[GPU][pid] = Bytes(600 * MIB)

    assert await process.measure() == 0

    assert process.context_size() == 600 * MIB


async def test_an_estimate_of_a_process_that_is_not_listed_is_not_taken_for_wrong(
    process: Process,
) -> None:
    process.books.context[0][process.slot] = 300 * MIB

    assert await process.measure() == -errno.ENODATA


async def test_a_measurement_during_which_memory_moved_does_not_count(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(300 * MIB)
    driver.meanwhile = process.move_memory

    assert await process.measure() == -errno.EBUSY
    assert (process.overhead, driver.passes) == (0, 3)


async def test_a_measurement_while_a_request_is_under_way_does_not_count(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(300 * MIB)
    process.books.activity[process.slot] = lib.VCUDA_ACTIVITY_BEGUN + 1

    assert await process.measure() == -errno.EBUSY
    await process.manager.measure()
    assert process.overhead == 0
    process.books.activity[process.slot] -= 1
    assert await process.measure() == 0
    assert process.overhead == 300 * MIB


async def test_a_request_that_begins_while_a_measurement_is_entered_is_not_taken_for_older(
    process: Process, driver: Driver, pid: int
) -> None:
    class Figures(dict[int, Bytes | None]):
        """Read while the process reserves what the driver has not given yet."""

        def __getitem__(self, key: int) -> Bytes | None:
            process.books.activity[process.slot] += lib.VCUDA_ACTIVITY_BEGUN + 1
            process.books.used[0][process.slot] += 100 * MIB
            return super().__getitem__(key)

    driver.held[GPU] = Figures({pid: Bytes(300 * MIB)})

    assert await process.measure() == -errno.EBUSY

    assert process.overhead == 0
    assert process.books.looks[process.slot] == 0


async def test_a_broken_driver_is_complained_of_once_until_it_works_again(
    process: Process, driver: Driver, pid: int, caplog: pytest.LogCaptureFixture
) -> None:
    driver.held[GPU][pid] = Bytes(MIB)
    driver.broken = True
    for _ in range(3):
        assert await process.measure() == -errno.EIO
    assert caplog.text.count("driver overhead: no driver") == 1

    driver.broken = False
    assert await process.measure() == 0
    driver.broken = True
    assert await process.measure() == -errno.EIO

    assert caplog.text.count("driver overhead: no driver") == 2


async def test_nothing_is_known_of_a_process_on_a_gpu_that_hangs_until_it_answers(
    process: Process, driver: Driver, pid: int
) -> None:
    process.books.used[0][process.slot] = MIB
    driver.held, driver.hanging = {}, True

    assert await process.measure() == -errno.EIO
    await process.manager.measure()
    assert process.context_size() == 0
    driver.held, driver.hanging = {GPU: {pid: Bytes(300 * MIB)}}, False

    await process.manager.measure()

    assert process.overhead == 299 * MIB


async def test_an_answer_is_never_older_than_its_question(driver: Driver) -> None:
    release = threading.Event()
    driver.meanwhile = lambda: release.wait(SECONDS)
    nvml = nvml_of(driver)
    early = nvml.read(ALL)
    assert await eventually(lambda: driver.passes == 1)

    late = [nvml.read(ALL) for _ in range(5)]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(early, *late)

    assert driver.passes == 2


@pytest.mark.parametrize(("metered", "seated"), [(False, True), (True, False)])
async def test_who_cannot_be_measured_is_told_at_once(
    manage: Manage, driver: Driver, *, metered: bool, seated: bool
) -> None:
    process = await Process.of(manage(meter=driver if metered else None), seated=seated)

    assert await process.measure() == -errno.ENODATA


async def test_a_manager_that_stops_while_it_measures_leaves_nothing_behind(
    process: Process, driver: Driver
) -> None:
    release = threading.Event()
    driver.meanwhile = lambda: release.wait(SECONDS)
    with connect(process.socket) as connection:
        connection.sendall(MEASURE)
        assert await eventually(lambda: driver.passes == 1)
        await process.manager.stop()
        release.set()

        assert await asyncio.to_thread(receive, connection) is None


async def test_a_regular_measurement_enters_all_processes_and_survives_a_broken_driver(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.broken = True
    sampling = asyncio.create_task(process.manager.measure_every(0.01))
    assert await eventually(lambda: driver.passes > 2)
    driver.broken = False
    driver.held[GPU][pid] = Bytes(7 * MIB)

    assert await eventually(lambda: process.overhead == 7 * MIB)
    driver.held[GPU][pid] = Bytes(5 * MIB)
    process.move_memory()
    assert await eventually(lambda: process.overhead == 5 * MIB)
    sampling.cancel()


async def test_nobody_is_asked_while_there_is_nobody_to_measure(
    manage: Manage, driver: Driver
) -> None:
    process = await Process.of(manage(meter=driver), seated=False)

    await process.manager.measure()

    assert driver.passes == 0


async def test_an_instance_of_a_gpu_is_found_by_its_uuid(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held = {GpuUUID(GPU.replace("GPU-", "MIG-")): {pid: Bytes(MIB)}}

    assert await process.measure() == 0

    assert process.overhead == MIB


async def test_what_figures_contain_is_not_learnt_from_a_program_and_the_one_before_its_exec(
    process: Process, driver: Driver, pid: int, start_process: StartProcess
) -> None:
    """The first has 100 MiB of managed memory, of which the driver lets go late."""

    def manage(slot: int) -> None:
        for device in 0, lib.VCUDA_BESIDE:
            process.books.used[device][slot] = 100 * MIB
        process.books.activity[slot] += lib.VCUDA_ACTIVITY_BEGUN

    container = await start_process(process.socket)
    _status, slot, _reason = await container.answer()
    driver.held = {GPU: {container.pid: Bytes(400 * MIB), pid: Bytes(0)}}
    manage(slot)
    await process.manager.measure()
    await container.ask("exec")
    await process.manager.measure()

    driver.held[GPU][pid] = Bytes(400 * MIB)
    manage(process.slot)
    await process.manager.measure()

    assert process.overhead == 300 * MIB

"""What a context takes: learnt from the first one of its container that is measured."""

from pathlib import Path

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.overhead import ASSUMED
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, MIB, Bytes
from tests.limits.container_process import SECONDS, StartProcess
from tests.limits.open_door import virtual_manager
from tests.limits.overhead.measured import GPU, NAME, Driver, Process

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.overhead.measured_fixtures"]


async def show(manager: VirtualManager, name: str, gpu: GpuUUID = GPU) -> Process:
    """One more container whose first context is measured."""
    limits = [Limit(gpu, Bytes(GIB), 100, 100)]
    process = Process(manager, await manager.open(AllocationID(name), limits))
    await process.attach()
    await process.measure()
    return process


async def test_the_size_of_a_context_is_learnt_and_outlives_the_manager(
    root: Path, process: Process, driver: Driver, pid: int
) -> None:
    driver.held = {GPU: {pid: Bytes(300 * MIB)}}

    assert await process.measure() == 0

    assert process.context_size() == 300 * MIB
    await process.manager.stop()
    process.manager = virtual_manager(root, meter=driver)
    await process.manager.open(NAME, [Limit(GPU, Bytes(GIB), 100, 100)])
    assert process.context_size() == 300 * MIB
    driver.held = {GPU: {pid: Bytes(310 * MIB)}}
    await process.measure()
    assert process.context_size() == 300 * MIB


async def test_a_first_context_that_a_regular_measurement_finds_is_learnt_from(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(300 * MIB)

    await process.manager.measure()

    assert process.context_size() == 300 * MIB


async def test_growth_of_a_process_that_has_a_context_is_not_taken_for_one(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(300 * MIB)
    assert await process.measure() == 0
    driver.held[GPU][pid] = Bytes(301 * MIB)
    assert await process.measure() == 0

    assert process.context_size() == 300 * MIB


async def test_what_a_program_before_an_exec_had_is_not_taken_for_a_context(
    root: Path, driver: Driver, start_process: StartProcess
) -> None:
    """The driver may let go of it late."""
    manager = virtual_manager(root, meter=driver, read_seconds=SECONDS)
    directory = await manager.open(NAME, [Limit(GPU, Bytes(GIB), 100, 100)])
    container = await start_process(directory / "vcuda.sock")
    await container.answer()
    driver.held = {GPU: {container.pid: Bytes(0)}}
    await manager.measure()

    await container.ask("exec")
    witness = Process(manager, directory)
    await witness.attach()
    driver.held = {GPU: {container.pid: Bytes(500 * MIB)}}
    await manager.measure()

    assert witness.overheads() == {0, 500 * MIB}
    assert witness.context_size() == 0
    await manager.stop()


async def test_what_one_container_shows_counts_for_itself_alone(
    root: Path, driver: Driver, pid: int
) -> None:
    """It can hold memory that it does not book, so that its context looks large."""
    manager = virtual_manager(root, meter=driver)
    driver.held = {GPU: {pid: Bytes(500 * MIB)}}
    liar = await show(manager, "liar")
    limits = [Limit(GPU, Bytes(GIB), 100, 100)]
    honest = Process(manager, await manager.open(AllocationID("honest"), limits))
    await honest.attach()

    assert (liar.context_size(), honest.context_size()) == (500 * MIB, 0)

    driver.held = {GPU: {pid: Bytes(100 * MIB)}}
    await honest.measure()

    assert (liar.context_size(), honest.context_size()) == (500 * MIB, 100 * MIB)
    await manager.stop()


async def test_what_the_driver_does_not_tell_is_assumed_for_its_container_alone(
    root: Path, driver: Driver
) -> None:
    manager = virtual_manager(root, meter=driver)
    unlisted = await show(manager, "unlisted")
    neighbour = await show(manager, "neighbour")
    late = Process(
        manager, await manager.open(AllocationID("late"), [Limit(GPU, Bytes(GIB), 100, 100)])
    )
    await late.attach()

    assert unlisted.context_size() == neighbour.context_size() == ASSUMED
    assert late.context_size() == 0
    await manager.stop()

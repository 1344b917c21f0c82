"""What a context takes: learnt from the first one of its container that is measured."""

from gpumanager.limits.overhead import ASSUMED
from gpumanager.units import MIB, Bytes
from tests.limits.container_process import StartProcess
from tests.limits.metered_manager import Manage
from tests.limits.overhead.measured import GPU, Driver, Process

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.overhead.measured_fixtures"]


async def test_the_size_of_a_context_is_learnt_and_outlives_the_manager(
    manage: Manage, process: Process, driver: Driver, pid: int
) -> None:
    driver.held = {GPU: {pid: Bytes(300 * MIB)}}

    assert await process.measure() == 0

    assert process.context_size() == 300 * MIB
    await process.manager.stop()
    await Process.of(manage(meter=driver), seated=False)
    assert process.context_size() == 300 * MIB
    driver.held = {GPU: {pid: Bytes(310 * MIB)}}
    await process.measure()
    assert process.context_size() == 300 * MIB


async def test_a_first_context_that_a_regular_measurement_finds_is_learnt_from_and_no_growth(
    process: Process, driver: Driver, pid: int
) -> None:
    driver.held[GPU][pid] = Bytes(300 * MIB)
    await process.manager.measure()
    driver.held[GPU][pid] = Bytes(301 * MIB)
    assert await process.measure() == 0

    assert process.context_size() == 300 * MIB


async def test_what_a_program_before_an_exec_had_is_not_taken_for_a_context(
    manage: Manage, driver: Driver, start_process: StartProcess
) -> None:
    """The driver may let go of it late."""
    witness = await Process.of(manage(meter=driver), seated=False)
    container = await start_process(witness.socket)
    await container.answer()
    driver.held = {GPU: {container.pid: Bytes(0)}}
    await witness.manager.measure()

    await container.ask("exec")
    await witness.attach()
    driver.held = {GPU: {container.pid: Bytes(500 * MIB)}}
    await witness.manager.measure()

    assert witness.overheads() == {0, 500 * MIB}
    assert witness.context_size() == 0


async def test_what_one_container_shows_counts_for_itself_alone(
    manage: Manage, driver: Driver, pid: int
) -> None:
    """It can hold memory that it does not book, so that its context looks large."""
    manager = manage(meter=driver)
    driver.held = {GPU: {pid: Bytes(500 * MIB)}}
    liar = await Process.of(manager, "liar")
    await liar.measure()
    honest = await Process.of(manager, "honest")

    assert (liar.context_size(), honest.context_size()) == (500 * MIB, 0)

    driver.held = {GPU: {pid: Bytes(100 * MIB)}}
    await honest.measure()

    assert (liar.context_size(), honest.context_size()) == (500 * MIB, 100 * MIB)


async def test_what_the_driver_does_not_tell_is_assumed_for_its_container_alone(
    manage: Manage, driver: Driver
) -> None:
    manager = manage(meter=driver)
    unlisted, neighbour = [await Process.of(manager, name) for name in ("unlisted", "neighbour")]
    for one in (unlisted, neighbour):
        await one.measure()
    late = await Process.of(manager, "late")

    assert unlisted.context_size() == neighbour.context_size() == ASSUMED
    assert late.context_size() == 0

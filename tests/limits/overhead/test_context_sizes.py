"""What a context takes: learnt from those that are measured, for all GPUs of their model."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.overhead.context_sizes import ASSUMED, ContextSizes
from gpumanager.limits.values import Limit
from gpumanager.units import GIB, MIB, Bytes
from tests.limits.container_process import SECONDS, StartProcess
from tests.limits.open_door import virtual_manager
from tests.limits.overhead.measured import GPU, NAME, OTHER, Driver, Process

pytest_plugins = ["tests.limits.virtual_fixtures", "tests.limits.overhead.measured_fixtures"]


async def show(manager: VirtualManager, name: str, gpu: GpuUUID = GPU) -> Process:
    """One more container whose first context is measured."""
    limits = [Limit(gpu, Bytes(GIB), 100, 100)]
    process = Process(manager, await manager.open(AllocationID(name), limits))
    await process.attach()
    await process.measure()
    return process


async def test_the_size_of_a_context_is_learnt_for_all_of_its_model_and_outlives_the_manager(
    root: Path, driver: Driver, pid: int
) -> None:
    models = {GPU: "T4", OTHER: "T4"}
    manager = virtual_manager(root, meter=driver, model_of=models.get)
    both = [Limit(gpu, Bytes(GIB), 100, 100) for gpu in (GPU, OTHER)]
    process = Process(manager, await manager.open(NAME, both))
    await process.attach()
    driver.held = {GPU: {pid: Bytes(300 * MIB)}, OTHER: {}}

    assert await process.measure() == 0

    assert process.regions is not None
    sizes = [process.regions.config.limits[at].context_bytes for at in range(2)]
    assert sizes == [300 * MIB] * 2
    await show(manager, "second")
    await manager.stop()
    successor = virtual_manager(root, meter=driver, model_of=models.get)
    for name in (NAME, AllocationID("second")):
        await successor.open(name, both)
    late = Process(successor, await successor.open(AllocationID("late"), both))
    await late.attach()
    assert late.context_size() == 300 * MIB
    await successor.stop()


async def test_a_gpu_that_appears_late_has_what_is_known_of_its_model(
    root: Path, driver: Driver, pid: int
) -> None:
    models = {GPU: "T4"}
    manager = virtual_manager(root, meter=driver, model_of=models.get)
    driver.held = {GPU: {pid: Bytes(300 * MIB)}}
    for name in ("first", "second"):
        await show(manager, name)

    models[OTHER] = "T4"
    limits = [Limit(OTHER, Bytes(GIB), 100, 100)]
    late = Process(manager, await manager.open(AllocationID("late"), limits))
    await late.attach()

    assert late.context_size() == 300 * MIB
    await manager.stop()


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

    assert (liar.context_size(), honest.context_size()) == (100 * MIB, 100 * MIB)
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


async def test_a_process_that_lies_about_its_memory_does_not_make_contexts_small(
    root: Path, driver: Driver, pid: int
) -> None:
    manager = virtual_manager(root, meter=driver)
    driver.held = {GPU: {pid: Bytes(300 * MIB)}}
    for name in ("one", "two"):
        limits = [Limit(GPU, Bytes(GIB), 100, 100)]
        process = Process(manager, await manager.open(AllocationID(name), limits))
        await process.attach()
        books, slot = process.books, process.slot
        driver.meanwhile = lambda b=books, s=slot: b.used[0].__setitem__(s, 299 * MIB)
        await process.measure()
        books.used[0][slot] = 0

    driver.meanwhile = lambda: None
    assert (await show(manager, "honest")).context_size() == 300 * MIB
    await manager.stop()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000))))
def test_two_containers_believe_the_smallest_context_that_any_has_shown(
    seen: list[tuple[str, int]],
) -> None:
    sizes = ContextSizes()

    for name, size in seen:
        sizes.learn(GPU, Bytes(size), AllocationID(name))

    shown = {name for name, size in seen if size > 0}
    smallest = min((size for _, size in seen if size > 0), default=0)
    assert all(sizes.of(GPU, AllocationID(name)) == smallest for name in shown if len(shown) > 1)
    assert sizes.of(GPU, AllocationID("late")) == (smallest if len(shown) > 1 else 0)

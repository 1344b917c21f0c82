"""What a context takes: learnt from the first that is measured, for all GPUs of its model."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from measured import GPU, NAME, OTHER, Driver, Process

from gpumanager.units import GIB, MIB, Bytes
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.measuring import ContextSizes
from gpumanager.virtual.values import AllocationID, Limit

pytest_plugins = ["virtual_fixtures", "measured_fixtures"]


async def test_the_size_of_a_context_is_learnt_for_all_of_its_model_and_outlives_the_manager(
    root: Path, driver: Driver, pid: int
) -> None:
    models = {GPU: "T4", OTHER: "T4"}
    manager = VirtualSockets(root, meter=driver, model_of=models.get)
    both = [Limit(gpu, Bytes(GIB), 100, 100) for gpu in (GPU, OTHER)]
    process = Process(manager, await manager.open(NAME, both))
    await process.attach()
    driver.held = {GPU: {pid: Bytes(300 * MIB)}, OTHER: {}}

    assert await process.measure() == 0

    assert process.regions is not None
    sizes = [process.regions.config.limits[at].context_bytes for at in range(2)]
    assert sizes == [300 * MIB] * 2
    await manager.stop()
    successor = VirtualSockets(root, meter=driver, model_of=models.get)
    await successor.open(NAME, both)
    late = Process(successor, await successor.open(AllocationID("late"), both))
    await late.attach()
    assert late.context_size() == 300 * MIB
    await successor.stop()


async def test_a_gpu_that_appears_late_has_what_is_known_of_its_model(
    root: Path, driver: Driver, pid: int
) -> None:
    models = {GPU: "T4"}
    manager = VirtualSockets(root, meter=driver, model_of=models.get)
    process = Process(manager, await manager.open(NAME, [Limit(GPU, Bytes(GIB), 100, 100)]))
    await process.attach()
    driver.held = {GPU: {pid: Bytes(300 * MIB)}}
    await process.measure()

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


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_the_smallest_context_seen_is_what_a_context_takes(seen: list[int]) -> None:
    sizes = ContextSizes()

    changes = [sizes.learn(GPU, Bytes(size)) for size in seen if size > 0]

    assert sizes.of(GPU) == min((size for size in seen if size > 0), default=0)
    assert not changes or changes[0]

"""The shim is never stricter than a driver, nor laxer: random walks over all kinds of memory."""

from pathlib import Path

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import GIB
from tests.native.gpu_node import GpuNode, accounts, bare_container, machine_of
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces

LIMIT = GIB
PHASES, STEPS = 40, 25


async def codes(container: Container, seed: int) -> list[str]:
    told = await container.run(
        "from tests.native.programs.memory_walk import Walk\n"
        f"walk = Walk({seed})\n"
        f"walk.run({PHASES}, {STEPS})\n"
        "tell(codes=walk.codes)"
    )
    found: list[str] = told["codes"]
    return found


@pytest.mark.parametrize("seed", range(8))
async def test_every_code_is_that_of_a_driver_on_a_gpu_as_small_as_the_limit(
    one_gpu: GpuNode, gpu: SimulatedGpus, work: Path, seed: int
) -> None:
    small = SimulatedGpus.create(work / "small", machine_of(memory=LIMIT))
    try:
        bare = await codes(bare_container(work, small), seed)
    finally:
        small.close()

    limited = await codes(await one_gpu.container(LIMIT), seed)

    assert sum(code.endswith(": 2") for code in bare) > PHASES
    assert limited == bare
    assert accounts(gpu)[0].bytes_peak <= LIMIT

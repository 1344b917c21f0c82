"""Whatever a program asks about its memory, it is told the same, and that is the truth."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumanager.ids import AllocationID
from gpumanager.sim.gpu import SimulatedGpus
from tests.native.gpu_node import GpuNode, accounts_by_gpu, machine_of

pytestmark = pytest.mark.namespaces

LIMIT = 128 << 20


@pytest.fixture
def machine(work: Path) -> Iterator[SimulatedGpus]:
    simulated = SimulatedGpus.create(work, machine_of(1, capability=9))
    yield simulated
    simulated.close()


async def test_all_figures_agree_with_the_driver_after_each_kind_of_allocation_and_its_end(
    node: GpuNode,
) -> None:
    container = await node.container({0: LIMIT})

    told = await container.run(
        "from tests.native.programs import memory_views, virtual_client as vm\n"
        f"assert vm.begin() == 0\n"
        f"tell(wrong=memory_views.history({LIMIT}))"
    )

    assert told["wrong"] == {kind: [] for kind in told["wrong"]}
    assert len(told["wrong"]) == 18
    (device,) = node.manager.usage(AllocationID("one")).devices
    assert device.held == 0
    assert device.peak == accounts_by_gpu(node.gpus)[0][0].bytes_peak

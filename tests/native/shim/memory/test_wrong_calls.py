"""Programs that call the driver wrongly behind the shim: the driver's answers stay its own."""

import asyncio

import pytest

from tests.native.gpu_node import PHYSICAL, GpuNode, accounts_by_gpu
from tests.native.shim_container import Container, reached

pytestmark = pytest.mark.namespaces

PAGE = 2 << 20
LIMIT = 64 * PAGE


@pytest.fixture
async def container(node: GpuNode) -> Container:
    return await node.container({0: LIMIT, 1: LIMIT})


async def test_what_the_driver_refuses_anyway_it_refuses_with_its_own_code(
    container: Container, node: GpuNode
) -> None:
    told = await container.run(
        """
from tests.native.programs import virtual_client as vm
from tests.native.programs import wrong_calls
before = wrong_calls.differences()
uninitialised = sorted({*wrong_calls.answers(vm.cuda).values()})
vm.cuda.cuInit(0)
without = wrong_calls.differences()
assert vm.begin() == 0
tell(before=before, without=without, within=wrong_calls.differences(), held=vm.held(),
     codes=uninitialised)
"""
    )

    assert told["codes"] != [3]  # some are wrong in any state
    assert 3 in told["codes"]
    assert (told["before"], told["without"], told["within"]) == ({}, {}, {})
    assert told["held"] == [0, 0]
    assert accounts_by_gpu(node.gpus)[0][0].refused == 0


@pytest.mark.parametrize("seed", range(2))
async def test_the_books_stay_exact_whatever_is_asked_on_a_gpu_that_others_have_filled(
    node: GpuNode, seed: int
) -> None:
    """The driver refuses what the limit would allow, and everything else that is wrong."""
    others = PHYSICAL - (24 + seed) * PAGE
    neighbour = await node.container({0: PHYSICAL}, name="neighbour")
    container = await node.container({0: LIMIT})
    there, over = container.work / "there", container.work / "over"
    filling = asyncio.create_task(
        neighbour.run(
            "from tests.native.programs import virtual_client as vm\n"
            f"vm.begin()\nassert vm.create({others})[0] == 0\n"
            f"reach({str(there)!r})\nwait_for({str(over)!r}, 60)"
        )
    )
    await reached(there, filling)

    told = await container.run(
        "from tests.native.programs import wrong_history\n"
        f"tell(wrong=wrong_history.run({seed}, 600, {others}))"
    )
    over.touch()
    await filling

    assert told["wrong"] == []
    assert accounts_by_gpu(node.gpus)[1][0].refused > 0

"""A tool that allocates from a pool when the driver calls it back within such an allocation."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.units import MIB
from tests.native.gpu_node import GpuNode
from tests.native.shim.pool.overlaid_driver import overlaid_libraries

pytestmark = pytest.mark.namespaces

LIMIT = 128 * MIB


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return overlaid_libraries(tmp_path_factory.mktemp("overlaid") / "driver", "called_back.c")


async def test_it_waits_for_no_turn_of_its_own_and_is_held_to_the_limit(
    node: GpuNode, libraries: Path
) -> None:
    container = replace(await node.container({0: LIMIT}), libraries=libraries)

    told = await container.run(
        f"""
from tests.native.programs.pool_client import *
pools, inner = LimitedPools({LIMIT}), []
@ctypes.CFUNCTYPE(None)
def call_back():
    before = waits()
    inner.extend(pools.alloc(16 * MIB)[0] for _ in range(12))
    inner.append(waits() - before)
pools.driver.call_back(call_back)
outer = pools.alloc(16 * MIB)[0]
*codes, slept = inner
tell(outer=outer, had=[outer, *codes].count(0) * 16 * MIB, last=codes[-1], slept=slept)
"""
    )

    slept = told.pop("slept")
    assert slept < 1000  # 50,000 pauses are what a turn that is stuck is given
    assert told["had"] <= LIMIT
    assert told["last"] == 2

"""Modules and libraries, through the shim over the simulated driver: in the books to the page that
the driver takes, or undone."""

import pytest

from gpumanager.units import MIB
from tests.native.measured_node import LIMIT, MeasuredNode
from tests.native.sim_box import PAGE

pytestmark = pytest.mark.namespaces


LOADERS = [
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuLibraryLoadData",
    "cuLibraryLoadFromFile",
]


@pytest.mark.parametrize("loader", LOADERS)
async def test_variables_beyond_the_limit_are_refused_and_the_program_lives(
    measured: MeasuredNode, loader: str
) -> None:
    told = await measured.run(
        f"""
make()
free = memory(driver)[0]
big, small = try_load({loader!r}, {LIMIT}), try_load({loader!r}, {MIB})
between = memory(driver)[0]
unload({loader!r}, small[1])
tell(big=big, small=small[0], between=free - between, after=free - memory(driver)[0])
"""
    )

    assert told == {"big": [2, None], "small": 0, "between": PAGE, "after": 0}
    assert measured.account().bytes_peak <= LIMIT


async def test_a_library_loaded_without_a_context_counts_when_a_kernel_is_asked_for(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"""
driver.cuInit(0)
library = load_library({10 * MIB})
create()
before = memory(driver)[0]
module_of(library)
tell(before=before, after=memory(driver)[0])
"""
    )

    assert told["before"] - told["after"] == 12 * MIB


async def test_a_burst_of_modules_costs_few_measurements_and_is_exact_after(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        """
make()
free = memory(driver)[0]
modules = [load(0) for _ in range(200)]
tell(taken=free - memory(driver)[0])
"""
    )

    assert told["taken"] == 14 * MIB  # 32 of them share a page
    assert measured.meter.passes < 100

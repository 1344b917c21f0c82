"""The memory limit where modules take their memory at the first launch of one of their kernels."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpumanager.units import MIB
from tests.native.measured_node import CLIENT, CONTEXT, LIMIT, Start, measured_each
from tests.native.sim_box import PAGE, PAGED

pytestmark = pytest.mark.namespaces

CODE, PIECE = 160 * MIB, 64 * MIB
LAZY = {"CUDA_MODULE_LOADING": "LAZY"}

PROGRAM = f"""
from tests.native.programs import virtual_client as vm
from tests.native.programs.pool_client import Pools

def function(module):
    found = ctypes.c_void_p()
    assert driver.cuModuleGetFunction(ctypes.byref(found), ctypes.c_void_p(module), b"any") == 0
    return found

def launch(function):
    return driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None)

def kernel():
    "A kernel of a module of which nothing tells what the driver will choose to load."
    result, module = try_load_image(fat({CODE}))
    assert result == SUCCESS
    return function(module)

def fill():
    "Pieces that it got until it was refused."
    count = 0
    while take() == SUCCESS:
        count += 1
    return count
"""

GRAPH = """
class KernelNode(ctypes.Structure):
    _fields_ = [
        ("function", ctypes.c_void_p),
        ("shape", ctypes.c_uint * 7),
        *((name, ctypes.c_void_p) for name in ("parameters", "extra", "kernel", "context")),
    ]

def graph_of(function):
    "Executable, of one kernel; nothing has run."
    graph, node, ready = (ctypes.c_void_p() for _ in range(3))
    params = KernelNode(function.value, (ctypes.c_uint * 7)(1, 1, 1, 1, 1, 1, 0))
    assert driver.cuGraphCreate(ctypes.byref(graph), 0) == SUCCESS
    add = driver.cuGraphAddKernelNode_v2
    assert add(ctypes.byref(node), graph, None, 0, ctypes.byref(params)) == SUCCESS
    flags = ctypes.c_ulonglong(0)
    return driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, flags)
"""

KINDS = {
    "cuMemAlloc": f"take = lambda: allocate(driver, {PIECE})[0]",
    "cuMemAllocAsync": f"pools = Pools()\ntake = lambda: pools.alloc({PIECE})[0]",
    "cuMemCreate": f"take = lambda: vm.create({PIECE})[0]",
}


@pytest.fixture
async def start(work: Path) -> AsyncIterator[Start]:
    """The manager's own measurements come after the program has ended."""
    async with measured_each(work, 60.0) as begin:
        yield begin


@pytest.mark.parametrize("cores", [50, 100])
@pytest.mark.parametrize("kind", KINDS)
async def test_code_that_a_first_launch_loaded_is_within_the_limit_that_is_filled_next(
    start: Start, kind: str, cores: int
) -> None:
    measured = start(PAGED)
    container = await measured.container(cores=cores)
    script = f"""
retain()
{KINDS[kind]}
fresh = kernel()
first = take(), launch(fresh)
tell(first=first, pieces=1 + fill())
"""

    told = await container.run(CLIENT + PROGRAM + script, **LAZY)

    assert told == {"first": [0, 0], "pieces": (LIMIT - CONTEXT - CODE - PAGE) // PIECE}
    assert measured.account().bytes_peak <= LIMIT


@pytest.mark.parametrize("cores", [50, 100])
async def test_code_that_a_graph_loads_is_within_the_limit_too(start: Start, cores: int) -> None:
    """Of kernels that were put into it by hand, and never launched."""
    measured = start(PAGED)
    container = await measured.container(cores=cores)
    script = f"""
retain()
{KINDS["cuMemAlloc"]}
fresh = kernel()
first = take(), graph_of(fresh)
tell(first=first, pieces=1 + fill())
"""

    told = await container.run(CLIENT + PROGRAM + GRAPH + script, **LAZY)

    assert told == {"first": [0, 0], "pieces": (LIMIT - CONTEXT - CODE - PAGE) // PIECE}


@pytest.mark.parametrize("cores", [50, 100])
async def test_a_first_launch_in_a_full_container_runs_and_leaves_no_room(
    start: Start, cores: int
) -> None:
    """The shim cannot tell before what a launch takes, nor undo it. So it refuses allocations
    until the program frees enough."""
    container = await start(PAGED).container(cores=cores)
    script = f"""
retain()
{KINDS["cuMemAlloc"]}
fresh, held = kernel(), []
while (answer := allocate(driver, {PIECE}))[0] == SUCCESS:
    held.append(answer[1])
launched = launch(fresh)
refused = [allocate(driver, {PAGE})[0], memory(driver)[0]]
for address in held[:3]:
    assert free(driver, address) == SUCCESS
tell(launched=launched, refused=refused, again=allocate(driver, {PAGE})[0])
"""

    told = await container.run(CLIENT + PROGRAM + script, **LAZY)

    assert told == {"launched": 0, "refused": [2, 0], "again": 0}


@pytest.mark.parametrize("cores", [50, 100])
async def test_a_module_that_is_loaded_anew_is_measured_anew(start: Start, cores: int) -> None:
    """Its function may have the handle of one that was launched before."""
    measured = start(PAGED)
    container = await measured.container(cores=cores)
    script = f"""
retain()
{KINDS["cuMemAlloc"]}
for _ in range(3):
    module = try_load_image(fat({CODE}))[1]
    assert launch(function(module)) == SUCCESS
    unload("cuModuleLoadData", module)
assert launch(kernel()) == SUCCESS
tell(pieces=fill())
"""

    told = await container.run(CLIENT + PROGRAM + script, **LAZY)

    assert told == {"pieces": (LIMIT - CONTEXT - CODE - PAGE) // PIECE}
    assert measured.account().bytes_peak <= LIMIT

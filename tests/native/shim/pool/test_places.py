"""Pools that the program did not make, got by CUDA 13's functions: charged where they are."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.units import MIB
from tests.native.gpu_node import GpuNode, accounts_by_gpu
from tests.native.shim.pool.overlaid_driver import overlaid_libraries
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces

LIMITS = {0: 128 * MIB, 1: 256 * MIB}
PLACES = f"""
from tests.native.programs.pool_client import *
DEVICE, HOST, HOST_NUMA, DOMAIN, PINNED = 1, 2, 3, 6, 1
pools = LimitedPools({LIMITS[0]})
real = pools.real

def at(entry, kind, number=0, library=pools.driver):
    pool, place = ctypes.c_void_p(), (ctypes.c_int * 2)(kind, number)
    assert getattr(library, entry)(ctypes.byref(pool), place, PINNED) == 0
    return pool

def left(device):  # as the container sees it, in MiB
    context = ctypes.c_void_p()
    assert pools.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert pools.driver.cuCtxSetCurrent(context) == 0
    mib = pools.left() // MIB
    assert pools.driver.cuCtxSetCurrent(pools.context) == 0
    return mib
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return overlaid_libraries(tmp_path_factory.mktemp("overlaid") / "driver", "cuda13_pools.c")


@pytest.fixture
async def container(node: GpuNode, libraries: Path) -> Container:
    return replace(await node.container(LIMITS), libraries=libraries)


@pytest.mark.parametrize("entry", ["cuMemGetDefaultMemPool", "cuMemGetMemPool"])
@pytest.mark.parametrize("place", ["HOST", "HOST_NUMA"])
async def test_a_pool_of_the_host_is_charged_nothing(
    container: Container, node: GpuNode, entry: str, place: str
) -> None:
    told = await container.run(
        PLACES
        + f"""
pool = at({entry!r}, {place})
codes = [pools.alloc(64 * MIB, None, pool)[0] for _ in range(6)]
tell(codes=codes, left=[left(0), left(1)], device=pools.alloc(128 * MIB)[0], full=left(0))
"""
    )

    assert told == {"codes": [0] * 6, "left": [128, 256], "device": 0, "full": 0}
    assert [use.bytes_peak for use in accounts_by_gpu(node.gpus)[0]] == [128 * MIB, 0]


@pytest.mark.parametrize("entry", ["cuMemGetDefaultMemPool", "cuMemGetMemPool"])
@pytest.mark.parametrize("place", ["DEVICE, 1", "DOMAIN, 0x301"])
async def test_a_pool_of_another_gpu_or_a_part_of_it_is_charged_to_that_gpu(
    container: Container, entry: str, place: str
) -> None:
    told = await container.run(
        PLACES
        + f"""
made, props = ctypes.c_void_p(), PoolProps(1, 0, ON_DEVICE, 1, None, 0)
assert real.cuMemPoolCreate(ctypes.byref(made), ctypes.byref(props)) == 0
assert real.cuDeviceSetMemPool(1, made) == 0  # past the shim
pool = at({entry!r}, {place})
codes = [pools.alloc(64 * MIB, None, pool)[0] for _ in range(5)]
tell(codes=codes, left=[left(0), left(1)])
"""
    )

    assert told == {"codes": [0, 0, 0, 0, 2], "left": [128, 0]}


async def test_a_pool_of_unknown_origin_is_charged_where_the_driver_tells_that_it_is(
    container: Container,
) -> None:
    """From 13.2 on; the program got it past the shim."""
    told = await container.run(
        PLACES
        + """
ctypes.c_bool.in_dll(real, "tells_places").value = 1
host, made = at("cuMemGetDefaultMemPool", HOST, library=real), ctypes.c_void_p()
props = PoolProps(1, 0, ON_DEVICE, 1, None, 0)
assert real.cuMemPoolCreate(ctypes.byref(made), ctypes.byref(props)) == 0
assert real.cuDeviceSetMemPool(1, made) == 0
codes = [pools.alloc(64 * MIB, None, pool)[0] for pool in (host, host, host, made)]
tell(codes=codes, left=[left(0), left(1)])
"""
    )

    assert told == {"codes": [0] * 4, "left": [128, 192]}


@pytest.mark.parametrize("place", ["HOST", "DEVICE, 1"])
async def test_a_pool_whose_place_no_driver_tells_is_charged_to_the_current_gpu(
    container: Container, place: str
) -> None:
    """Before 13.2. The pool of the other GPU was made past the shim, and is not its default."""
    told = await container.run(
        PLACES
        + f"""
made, props = ctypes.c_void_p(), PoolProps(1, 0, ON_DEVICE, 1, None, 0)
assert real.cuMemPoolCreate(ctypes.byref(made), ctypes.byref(props)) == 0
assert real.cuDeviceSetMemPool(1, made) == 0
pool = at("cuMemGetMemPool", {place}, library=real)
tell(code=pools.alloc(64 * MIB, None, pool)[0], left=[left(0), left(1)])
"""
    )

    assert told == {"code": 0, "left": [64, 256]}

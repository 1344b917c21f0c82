"""Whose a pool is, behind the shim: destroyed in use, of the host, of another process, of a context
that has ended, of a parent, of a program that was killed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from tests.native.gpu_node import LIMIT, GpuNode
from tests.native.shim.pool.pool_scripts import CHUNK, told
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(one_gpu: GpuNode) -> Container:
    return await one_gpu.container()


@pytest.fixture
def denied(manager: VirtualManager) -> Callable[[], int]:
    return lambda: manager.usage(AllocationID("one")).devices[0].denied


async def test_a_pool_destroyed_in_use_is_charged_until_its_last_allocation_is_free(
    container: Container,
) -> None:
    answer = await told(
        container,
        """
pool = pools.made()
assert pools.driver.cuDeviceSetMemPool(0, pool) == 0
first, second = pools.had(40 * MIB), pools.had(MIB)
idle = pools.made()
pools.free(pools.had(MIB, None, idle))
pools.sync()
destroyed = [pools.destroy(pool), pools.destroy(idle)]
unknown = [pools.destroy(pool), pools.trim(pool), pools.put(pool, THRESHOLD, 0),
           pools.alloc(1, None, pool)[0], pools.destroy(idle)]
current = pools.current().value == default.value
used = pools.both()
pools.free(first)
less = pools.both()
pools.spin(None, 20_000_000)
pools.free(second)
pending = pools.both()
pools.sync()
tell(destroyed=destroyed, unknown=unknown, current=current, used=used, less=less,
     pending=pending, gone=pools.both(), standard=pools.destroy(default))
""",
    )

    assert (answer["destroyed"], answer["unknown"]) == ([0, 0], [1, 1, 1, 1, 1])
    assert answer["current"] is True
    assert answer["used"] == [2 * CHUNK, 2 * CHUNK]
    assert answer["less"] == [2 * CHUNK, 2 * CHUNK]
    assert answer["pending"] == [2 * CHUNK, 2 * CHUNK]
    assert answer["gone"] == [0, 0]
    assert answer["standard"] == 1


async def test_a_pool_of_the_host_or_of_another_process_is_charged_nothing(
    container: Container,
) -> None:
    answer = await told(
        container,
        f"""
host, own = pools.made(place=ON_HOST), pools.made(handles=1)
on_host = pools.alloc({2 * LIMIT}, None, host)
address = pools.had(MIB, None, own)
handle, data, shared = ctypes.c_int(-1), (ctypes.c_ubyte * 64)(), ctypes.c_void_p()
mapped, zero = ctypes.c_uint64(), ctypes.c_uint64(0)
driver = pools.driver
assert driver.cuMemPoolExportToShareableHandle(ctypes.byref(handle), own, 1, zero) == 0
assert driver.cuMemPoolExportPointer(data, ctypes.c_uint64(address)) == 0
assert driver.cuMemPoolImportFromShareableHandle(
    ctypes.byref(shared), ctypes.c_void_p(handle.value), 1, zero) == 0
assert driver.cuMemPoolImportPointer(ctypes.byref(mapped), shared, data) == 0
both = pools.both()
refused = pools.alloc(1, None, shared)[0]
freed = [pools.free(on_host[1]), pools.free(mapped.value), pools.free(address)]
pools.sync()
ended = [pools.destroy(pool) for pool in (host, own, shared)]
tell(on_host=on_host[0], both=both, refused=refused, freed=freed, ended=ended, end=pools.both())
""",
    )

    assert (answer["on_host"], answer["refused"]) == (0, 1)
    assert answer["both"] == [CHUNK, CHUNK]
    assert (answer["freed"], answer["ended"], answer["end"]) == ([0] * 3, [0] * 3, [0, 0])


async def test_memory_of_a_pool_is_charged_beyond_the_end_of_its_context(
    container: Container,
) -> None:
    answer = await told(
        container,
        """
made = ctypes.c_void_p()
assert pools.driver.cuCtxCreate_v2(ctypes.byref(made), 0, 0) == 0
stream = pools.stream()
assert pools.driver.cuCtxSetCurrent(pools.context) == 0
address = pools.had(MIB, stream)
current = ctypes.c_void_p()
pools.driver.cuCtxGetCurrent(ctypes.byref(current))
assert pools.driver.cuCtxDestroy_v2(made) == 0
held = pools.both()
pools.free(address)
pools.sync()
tell(same=current.value == pools.context.value, held=held, gone=pools.both())
""",
    )

    assert answer == {"same": True, "held": [CHUNK, CHUNK], "gone": [0, 0]}


async def test_a_forked_child_begins_with_no_pools_and_the_parents_stay(
    container: Container,
) -> None:
    answer = await told(
        container,
        f"""
import os
pools.put(default, THRESHOLD, 1 << 62)
pools.free(pools.had(MIB))
child = os.fork()
if child == 0:
    own = LimitedPools({LIMIT})
    own.free(own.had(40 * MIB))
    before = own.both()
    own.sync()
    tell(child=before, later=own.both())
    os._exit(0)
os.waitpid(child, 0)
while pools.books() != {CHUNK}:
    pass
tell(parent=pools.both())
""",
    )

    assert answer["child"] == [3 * CHUNK, 3 * CHUNK]
    assert (answer["later"], answer["parent"]) == ([CHUNK, CHUNK], [CHUNK, CHUNK])


async def test_a_killed_program_leaves_nothing_of_its_pools(
    container: Container, work: Path
) -> None:
    answer = await told(
        container,
        f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
from tests.native.programs.pool_client import *
pools = LimitedPools({LIMIT})
pools.had({LIMIT // 2})
print("held", flush=True)
while True:
    pools.free(pools.had({LIMIT // 4}))
'''], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline().strip() == "held"
held = pools.books()
child.kill()
child.wait()
soon(lambda: pools.books() == 0)
tell(held=held >= {LIMIT // 2}, left=pools.both())
""",
    )

    assert answer == {"held": True, "left": [0, 0]}

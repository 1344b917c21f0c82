"""The shim over the simulated driver: whose own account shows what the limits are worth."""

import pytest

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.native.gpu_node import LIMIT, GpuNode, accounts

pytestmark = pytest.mark.namespaces


async def test_the_driver_never_holds_a_byte_more_than_the_limit(
    one_gpu: GpuNode, gpu: SimulatedGpus
) -> None:
    told = await (await one_gpu.container()).run(
        f"""
driver = cuda()
begin(driver)
held = []
while (answer := allocate(driver, {254 * MIB} - 1))[0] == SUCCESS:
    held.append(answer[1])
refused, rest = answer[0], memory(driver)[0]
last, beyond = allocate(driver, rest)[0], allocate(driver, 1)[0]
freed = free(driver, held[0])
tell(blocks=len(held), refused=refused, rest=rest, last=last, beyond=beyond, freed=freed,
     again=allocate(driver, {254 * MIB} - 1)[0])
"""
    )

    assert (told["blocks"], told["refused"], told["rest"]) == (8, 2, 16 * MIB)
    assert (told["last"], told["beyond"]) == (0, 2)
    assert (told["freed"], told["again"]) == (0, 0)
    (account,) = accounts(gpu)
    assert (account.bytes_peak, account.refused) == (LIMIT, 0)


async def test_on_the_real_clock_nobody_gets_more_than_was_promised(
    one_gpu: GpuNode, gpu: SimulatedGpus
) -> None:
    """Less, on a machine that comes to launch late; how exact it is tells time/test_shares.py."""
    container = await one_gpu.container(cores=30)

    await container.run("spin_for(2, [(2_000_000, 1)], synchronise=False)")

    (account,) = accounts(gpu)
    span = account.last_end_ns - account.first_work_ns
    assert 0 < account.busy_ns < 0.35 * span


GREEDY = f"""
from tests.native.programs.shim_client import *
driver = cuda()
begin(driver)
while allocate(driver, {64 * MIB})[0] == SUCCESS:
    pass
print("full", flush=True)
while True:
    allocate(driver, 1)
"""


async def test_a_killed_program_leaves_the_books_right_within_a_second(
    one_gpu: GpuNode, gpu: SimulatedGpus, manager: VirtualManager
) -> None:
    container = await one_gpu.container()

    await container.run(
        f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {GREEDY!r}], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline().strip() == "full"
driver = cuda()
begin(driver)
assert allocate(driver, 1)[0] == OUT_OF_MEMORY
child.kill()
child.wait()
assert soon(lambda: memory(driver)[0] == {LIMIT})
assert allocate(driver, {LIMIT})[0] == SUCCESS
"""
    )

    assert manager.usage(AllocationID("one")).devices[0].peak == LIMIT
    assert accounts(gpu)[0].bytes_peak <= LIMIT


async def test_rows_that_the_driver_pads_never_take_the_memory_over_the_limit(
    one_gpu: GpuNode, gpu: SimulatedGpus
) -> None:
    container = await one_gpu.container()

    told = await container.run(
        f"""
driver = cuda()
begin(driver)
def rows(height):
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    found = ctypes.byref(address), ctypes.byref(pitch)
    return driver.cuMemAllocPitch_v2(*found, ctypes.c_size_t(500), ctypes.c_size_t(height), 4)
tell(too_many=rows({LIMIT} // 512 + 1), fits=rows({LIMIT} // 512))
"""
    )

    assert told == {"too_many": 2, "fits": 0}
    assert accounts(gpu)[0].bytes_peak == LIMIT


async def test_memory_that_went_with_its_context_is_not_charged_twice_where_it_is_taken_again(
    one_gpu: GpuNode,
) -> None:
    container = await one_gpu.container()

    told = await container.run(
        f"""
driver, context = cuda(), ctypes.c_void_p()
driver.cuInit(0)
results = []
for _ in range(8):
    assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == SUCCESS
    results.append(allocate(driver, {LIMIT // 4}))
    assert driver.cuCtxDestroy_v2(context) == SUCCESS
tell(results=sorted({{result for result, _ in results}}), places=len({{at for _, at in results}}))
"""
    )

    assert told == {"results": [0], "places": 1}

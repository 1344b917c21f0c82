"""The memory limit over a stand-in driver: what is refused, what is seen, what is given back."""

from pathlib import Path

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.units import MIB, Bytes
from tests.native.shim_container import ALLOCATION, LIMIT, Container, allocation

pytestmark = pytest.mark.namespaces


async def test_allocations_are_refused_at_the_limit_to_the_page_and_the_program_lives_on(
    container: Container, manager: VirtualManager
) -> None:
    told = await container.run(
        f"""
driver = cuda()
driver.cuInit(0)
whole = allocate(driver, {LIMIT} + 1)[0]
result, first = allocate(driver, {LIMIT - 3 * MIB})
second, address = allocate(driver, 1)
third = allocate(driver, {2 * MIB})[0]
freed = free(driver, first)
tell(whole=whole, first=result, second=second, third=third, freed=freed,
     again=allocate(driver, {LIMIT - 3 * MIB})[0],
     driver_calls=driver.stand_in_calls(b"cuMemAlloc_v2"))
"""
    )

    assert (told["whole"], told["third"]) == (2, 2)
    assert (told["first"], told["second"], told["freed"], told["again"]) == (0, 0, 0, 0)
    assert told["driver_calls"] == 3
    (usage,) = manager.usage(ALLOCATION).devices
    assert (usage.peak, usage.denied) == (LIMIT, 2)


async def test_the_driver_refusing_gives_the_reservation_back(
    work: Path, driver: Path, manager: VirtualManager
) -> None:
    container = Container(driver, await allocation(manager, memory=4096 * MIB), work)

    told = await container.run(
        f"""
driver = cuda()
driver.cuInit(0)
refused = allocate(driver, {2048 * MIB})[0]
nothing = allocate(driver, 0)[0]
null = driver.cuMemAlloc_v2(None, ctypes.c_size_t(1024))
tell(refused=refused, nothing=nothing, null=null, view=memory(driver))
"""
    )

    assert (told["refused"], told["nothing"], told["null"]) == (2, 1, 1)
    assert told["view"] == [1024 * MIB, 1024 * MIB]


async def test_every_way_to_allocate_is_charged_once_although_the_driver_calls_itself(
    plain_container: Container,
) -> None:
    told = await plain_container.run(
        f"""
driver = cuda()
driver.cuInit(0)
address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
size = ctypes.c_size_t({2 * MIB})
left, by = [memory(driver)[0]], ctypes.byref(address)
for call in (lambda: driver.cuMemAlloc_v2(by, size), lambda: driver.cuMemAllocManaged(by, size, 1),
             lambda: driver.cuMemAllocAsync(by, size, None),
             lambda: driver.cuMemAlloc(by, {2 * MIB}),
             lambda: driver.cuMemAllocPitch_v2(by, ctypes.byref(pitch), ctypes.c_size_t(1000),
                                               ctypes.c_size_t(2000), 4)):
    assert call() == SUCCESS
    left.append(memory(driver)[0])
tell(taken=[before - after for before, after in zip(left, left[1:])])
"""
    )

    assert told["taken"] == [2 * MIB] * 5


async def test_what_is_not_freed_stays_charged(container: Container) -> None:
    told = await container.run(
        f"""
driver = cuda()
driver.cuInit(0)
_, address = allocate(driver, {LIMIT})
driver.stand_in_refuse_free(1)
refused, held = free(driver, address), memory(driver)[0]
driver.stand_in_refuse_free(0)
stranger = free(driver, 12345)
freed = driver.cuMemFreeAsync(ctypes.c_uint64(address), None)
tell(refused=refused, held=held, stranger=stranger, freed=freed, left=memory(driver)[0])
"""
    )

    assert (told["refused"], told["held"]) == (1, 0)
    assert (told["stranger"], told["freed"], told["left"]) == (0, 0, LIMIT)


@pytest.mark.parametrize("refused", [0, 1])
async def test_what_is_allocated_while_a_context_ends_does_not_end_with_it(
    container: Container, refused: int
) -> None:
    """The next context may have its handle before the call that ended it has returned."""
    told = await container.run(
        f"""
import threading
driver, meanwhile = cuda(), []
driver.cuInit(0)
assert allocate(driver, {2 * MIB})[0] == 0
@ctypes.CFUNCTYPE(None)
def other_thread_allocates():
    thread = threading.Thread(target=lambda: meanwhile.append(allocate(driver, {4 * MIB})))
    thread.start()
    thread.join()
driver.stand_in_while_destroying(other_thread_allocates)
context = ctypes.c_void_p()
driver.cuCtxGetCurrent(ctypes.byref(context))
driver.stand_in_refuse_free({refused})
result = driver.cuCtxDestroy_v2(context)
after = {LIMIT} - memory(driver)[0]
driver.stand_in_refuse_free(0)
freed = free(driver, meanwhile[0][1])
tell(result=result, after=after, freed=freed, left={LIMIT} - memory(driver)[0])
"""
    )

    kept = refused * 2 * MIB
    assert told == {"result": refused, "after": 4 * MIB + kept, "freed": 0, "left": kept}


async def test_the_program_sees_its_limit_as_the_memory_of_the_gpu(container: Container) -> None:
    told = await container.run(
        f"""
driver = cuda()
driver.cuInit(0)
total, half = ctypes.c_size_t(), ctypes.c_size_t()
driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
allocate(driver, {MIB + 1})
tell(total=total.value, view=memory(driver),
     null_total=driver.cuMemGetInfo_v2(ctypes.byref(half), None), half=half.value,
     null_free=driver.cuMemGetInfo_v2(None, ctypes.byref(total)))
"""
    )

    assert told["total"] == LIMIT
    assert told["view"] == [LIMIT - 2 * MIB, LIMIT]
    assert (told["null_total"], told["half"], told["null_free"]) == (0, LIMIT - 2 * MIB, 1)


async def test_a_gpu_that_was_not_granted_has_no_memory(
    work: Path, driver: Path, manager: VirtualManager
) -> None:
    other = GpuUUID("GPU-11111111-1111-1111-1111-111111111111")
    directory = await manager.open(ALLOCATION, [Limit(other, Bytes(LIMIT), 100, 100)])

    told = await Container(driver, directory, work).run(
        """
driver = cuda()
driver.cuInit(0)
tell(result=allocate(driver, 1)[0], view=memory(driver))
"""
    )

    assert told == {"result": 2, "view": [0, 0]}

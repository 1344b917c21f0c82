"""Virtual memory management through the shim over the simulated driver: limits, books, ledger."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from tests.native.gpu_node import GpuNode, accounts_by_gpu
from tests.native.shim.memory.virtual_scripts import LIMIT, PRELUDE
from tests.native.shim_container import Container, allocation

pytestmark = pytest.mark.namespaces


@pytest.fixture
async def container(node: GpuNode) -> Container:
    return await node.container({0: LIMIT})


@pytest.fixture(params=["its own", "through the shim"])
async def stood_in(
    request: pytest.FixtureRequest,
    work: Path,
    driver: Path,
    plain_driver: Path,
    manager: VirtualManager,
) -> Container:
    """Over a driver that refuses on demand; how its calls of its own exports go."""
    libraries = driver if request.param == "its own" else plain_driver
    return Container(libraries, await allocation(manager), work)


RULES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "what is mapped stays charged when its handle is released": (
        """
vm.begin()
at = vm.reserve(256 * P)
held = [vm.segment(at, 40 * P), vm.held(), vm.create(25 * P)[0]]
tell(held=held, unmapped=vm.unmap(at, 40 * P), after=vm.held(),
     again=[vm.segment(at, 64 * P), vm.held()])
""",
        {"held": [0, [40, 40], 2], "unmapped": 0, "after": [0, 0], "again": [0, [64, 64]]},
    ),
    "memory mapped at many places is charged once until the last is unmapped": (
        """
vm.begin()
at, (_, handle) = vm.reserve(256 * P), vm.create(8 * P)
codes = [vm.map_at(at + n * 8 * P, 8 * P, handle) for n in range(4)] + [vm.release(handle)]
seen = [vm.held()]
for first, count in ((1, 2), (0, 1), (3, 1)):
    codes.append(vm.unmap(at + first * 8 * P, count * 8 * P))
    seen.append(vm.held())
tell(codes=codes, seen=seen)
""",
        {"codes": [0] * 8, "seen": [[8, 8], [8, 8], [8, 8], [0, 0]]},
    ),
    "a retained handle keeps the memory and its charge": (
        """
vm.begin()
at = vm.reserve(8 * P)
vm.segment(at, 8 * P)
code, handle = vm.retain(at + 5 * P)
seen = [vm.unmap(at, 8 * P), vm.held(), vm.create(57 * P)[0]]
tell(code=code, seen=seen, released=[vm.release(handle), vm.release(handle)], after=vm.held())
""",
        {"code": 0, "seen": [0, [8, 8], 2], "released": [0, 1], "after": [0, 0]},
    ),
    "what the driver refuses changes no charge": (
        """
vm.begin()
at, (_, handle) = vm.reserve(8 * P), vm.create(4 * P)
codes = [vm.create(P + 1)[0], vm.create(0)[0], vm.map_at(at, 8 * P, handle),
         vm.map_at(at, 4 * P, handle), vm.map_at(at, 4 * P, handle),
         vm.unmap(at, 2 * P), vm.unmap(at, 8 * P), vm.release(handle + 1),
         vm.cuda.cuMemCreate(None, vm.SIZE(P), None, vm.U64(0)),
         vm.cuda.cuMemRetainAllocationHandle(None, ctypes.c_void_p(at))]
seen = vm.held()
tell(codes=codes, seen=seen, end=[vm.release(handle), vm.unmap(at, 4 * P), vm.held()])
""",
        {"codes": [1, 1, 1, 0, 1, 1, 1, 1, 1, 1], "seen": [4, 4], "end": [0, 0, [0, 0]]},
    ),
    "threads without a context charge and give back": (
        """
import threading
vm.begin()
codes = []
def work(n):
    at = vm.reserve(4 * P)
    for _ in range(50):
        code = vm.segment(at, 4 * P)
        codes.append(code or vm.unmap(at, 4 * P))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
tell(codes=sorted(set(codes)), count=len(codes), held=vm.held())
""",
        {"codes": [0], "count": 200, "held": [0, 0]},
    ),
    "each function is the shim's however it is asked for": (
        """
names = ("cuMemCreate cuMemRelease cuMemRetainAllocationHandle cuMemMap cuMemUnmap"
         " cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMemMapArrayAsync"
         " cuMulticastCreate cuMulticastBindMem cuMulticastBindAddr cuMulticastUnbind").split()
vm.begin()
wrong = [name for name in names for flags in (0, 1, 2)
         if entry(vm.cuda, name, 12050, flags)[:2] != (0, address_of(
             getattr(vm.cuda, name + ("_ptsz" if "Async" in name and flags == 2 else ""))))]
real = ctypes.CDLL("libvcuda-real.so.1")
same = [name for name in names if address_of(getattr(vm.cuda, name)) ==
        address_of(getattr(real, name))]
sparse = [getattr(vm.cuda, "cuMemMapArrayAsync" + end)(None, 0, None) for end in ("", "_ptsz")]
empty = (ctypes.c_char * 96)()
mapped = [getattr(vm.cuda, "cuMemMapArrayAsync" + end)(empty, 1, None) for end in ("", "_ptsz")]
tell(wrong=wrong, same=same, alike=sparse == mapped)
""",
        {"wrong": [], "same": [], "alike": True},
    ),
}
"""The rule, a program that keeps to it, and what it tells."""


@pytest.mark.parametrize("rule", RULES)
async def test_virtual_memory_is_charged_while_anything_keeps_it(
    container: Container, rule: str
) -> None:
    script, expected = RULES[rule]

    assert await container.run(PRELUDE + script) == expected


async def test_memory_is_refused_beyond_the_limit_without_any_context_and_life_goes_on(
    container: Container, node: GpuNode
) -> None:
    told = await container.run(
        PRELUDE
        + """
assert vm.cuda.cuInit(0) == 0
first, whole = vm.create(63 * P), vm.create(2 * P)
last, beyond = vm.create(P), vm.create(P)
tell(codes=[first[0], whole[0], last[0], beyond[0]], freed=vm.release(first[1]),
     again=vm.create(63 * P)[0], host=vm.create(100 * P, 0, vm.HOST)[0])
"""
    )

    assert told == {"codes": [0, 2, 0, 2], "freed": 0, "again": 0, "host": 0}
    ((account, _),) = accounts_by_gpu(node.gpus)
    assert (account.bytes_peak, account.refused) == (LIMIT, 0)
    assert node.manager.usage(AllocationID("one")).devices[0].denied == 2


async def test_segments_of_an_allocator_that_grows_in_place_are_held_to_the_byte(
    container: Container, node: GpuNode
) -> None:
    told = await container.run(
        PRELUDE
        + """
vm.begin()
at = vm.reserve(4096 * P)
sizes, place, mapped, seen = (1, 10, 4, 7, 1, 10), 0, [], []
while (code := vm.segment(at + place * P, (size := sizes[len(mapped) % 6]) * P)) == 0:
    mapped.append((place, size))
    place += size
seen.append([code, vm.held()[0] + size > 64, vm.held()[0] == vm.held()[1] == place])
for first, size in mapped[1::2]:
    assert vm.unmap(at + first * P, size * P) == 0
left = sum(size for _, size in mapped[0::2])
seen.append([vm.held() == (left, left), vm.write(at, b"still mapped"), vm.read(at, 12)])
tell(seen=seen, more=vm.segment(at + place * P, (64 - left) * P), full=vm.held())
"""
    )

    assert told["seen"] == [[2, True, True], [True, 0, "still mapped"]]
    assert (told["more"], told["full"]) == (0, [64, 64])
    assert accounts_by_gpu(node.gpus)[0][0].bytes_peak == LIMIT


async def test_nvidias_own_bindings_are_held_to_the_limit(
    container: Container, node: GpuNode
) -> None:
    told = await container.run(
        """
from cuda.bindings import driver as cu
def done(answer):
    assert answer[0] == cu.CUresult.CUDA_SUCCESS, answer
    return answer[1] if len(answer) == 2 else answer[1:]
done(cu.cuInit(0))
prop = cu.CUmemAllocationProp()
prop.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
prop.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
page = done(cu.cuMemGetAllocationGranularity(
    prop, cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM))
base = done(cu.cuMemAddressReserve(128 * page, 0, 0, 0))
count = 0
while (answer := cu.cuMemCreate(page, prop, 0))[0] == cu.CUresult.CUDA_SUCCESS:
    done(cu.cuMemMap(int(base) + count * page, page, 0, answer[1], 0))
    done(cu.cuMemRelease(answer[1]))
    count += 1
handle = done(cu.cuMemRetainAllocationHandle(int(base)))
done(cu.cuMemUnmap(base, count * page))
full = cu.cuMemCreate(count * page, prop, 0)[0].name
done(cu.cuMemRelease(handle))
tell(count=count, refused=answer[0].name, full=full,
     empty=cu.cuMemCreate(count * page, prop, 0)[0].name)
"""
    )

    refused = "CUDA_ERROR_OUT_OF_MEMORY"
    assert told == {"count": 64, "refused": refused, "full": refused, "empty": "CUDA_SUCCESS"}
    assert accounts_by_gpu(node.gpus)[0][0].bytes_peak == LIMIT


async def test_what_the_driver_would_not_take_back_stays_charged_until_it_does(
    stood_in: Container,
) -> None:
    told = await stood_in.run(
        PRELUDE
        + """
assert vm.cuda.cuInit(0) == 0
left = lambda: memory(vm.cuda)[0] // P
_, handle = vm.create(8 * P)
_, object = vm.multicast(8 * P)
start = [left(), vm.map_at(1 << 40, 8 * P, handle), vm.bind(object, handle, 8 * P)]
vm.cuda.stand_in_refuse_free(1)
refused = [vm.release(handle), vm.unmap(1 << 40, 8 * P), vm.unbind(object, 0, 8 * P), left()]
vm.cuda.stand_in_refuse_free(0)
taken = [(call(), left()) for call in (
    lambda: vm.release(handle), lambda: vm.unmap(1 << 40, 8 * P),
    lambda: vm.unbind(object, 0, 8 * P))]
tell(start=start, refused=refused, taken=taken)
_, alone = vm.create(4 * P)
seen = [vm.map_at(1 << 40, 4 * P, alone), vm.unmap(1 << 40, 4 * P), left()]
vm.cuda.stand_in_refuse_free(1)
seen += [vm.release(alone), left()]
vm.cuda.stand_in_refuse_free(0)
tell(alone=[*seen, vm.release(alone), left()])
"""
    )

    assert told["start"] == [24, 0, 0]
    assert told["refused"] == [1, 1, 1, 24]
    assert told["taken"] == [[0, 24], [0, 24], [0, 32]]
    assert told["alone"] == [0, 0, 28, 1, 28, 0, 32]


async def test_what_a_logical_endpoint_binds_stays_charged_until_it_is_unbound_or_gone(
    stood_in: Container,
) -> None:
    told = await stood_in.run(
        PRELUDE
        + """
assert vm.cuda.cuInit(0) == 0
left = lambda: memory(vm.cuda)[0] // P
at, seen = 1 << 40, []
for size in (1, 2, 4):  # one after another, the last by its address
    _, handle = vm.create(size * P)
    if size == 4:
        seen += [vm.map_at(at, 4 * P, handle), vm.endpoint_bind_at(7, at, 4 * P, 4 * P)]
        seen += [vm.unmap(at, 4 * P)]
    else:
        seen += [vm.endpoint_bind(7, handle, size * P, size * P)]
    seen += [vm.release(handle)]
_, other = vm.create(8 * P)
seen += [vm.endpoint_bind(8, other, 8 * P), vm.endpoint_bind(9, other, 8 * P, 0, 1)]
seen += [vm.release(other), left()]
vm.cuda.stand_in_refuse_free(1)
refused = [vm.endpoint_unbind(7, 4 * P), vm.cuda.cuLogicalEndpointDestroy(8), left()]
vm.cuda.stand_in_refuse_free(0)
steps = [
    lambda: vm.endpoint_unbind(8, 8 * P, 4 * P),  # nothing of it lies in there
    lambda: vm.endpoint_unbind(7, 4 * P),  # the first two, at once
    lambda: vm.cuda.cuLogicalEndpointDestroy(8),
    lambda: vm.cuda.cuLogicalEndpointDestroy(7),
    lambda: vm.cuda.cuLogicalEndpointDestroy(7),
]
tell(seen=seen, refused=refused, taken=[(step(), left()) for step in steps])
"""
    )

    assert told["seen"] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 17]
    assert told["refused"] == [1, 1, 17]
    assert told["taken"] == [[0, 17], [0, 20], [0, 28], [0, 32], [0, 32]]


@pytest.mark.parametrize("entry", ["cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"])
async def test_what_was_mapped_to_an_array_stays_charged_and_what_could_not_be_does_not(
    stood_in: Container, entry: str
) -> None:
    told = await stood_in.run(
        PRELUDE
        + f"""
assert vm.cuda.cuInit(0) == 0 and ctypes.sizeof(vm.MapInfo) == 96
left = lambda: memory(vm.cuda)[0] // P
handles = [vm.create(4 * P)[1] for _ in range(3)]
vm.cuda.stand_in_refuse_free(1)
refused = vm.map_tiles({entry!r}, *handles)
vm.cuda.stand_in_refuse_free(0)
mapped = vm.map_tiles({entry!r}, handles[0], handles[1], 12345, handles[0])
tell(refused=refused, mapped=mapped, left=[(vm.release(handle), left()) for handle in handles])
"""
    )

    assert (told["refused"], told["mapped"]) == (1, 0)
    assert told["left"] == [[0, 20], [0, 20], [0, 24]]

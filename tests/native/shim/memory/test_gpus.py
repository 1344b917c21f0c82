"""Containers with several GPUs: a limit for each, whatever a program calls them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumanager.ids import AllocationID
from gpumanager.sim.gpu import SimulatedGpus
from tests.native.gpu_node import GpuNode, accounts_by_gpu, gpu_uuid, machine_of

pytestmark = pytest.mark.namespaces

PAGE = 2 << 20
LIMITS = {0: 32 * PAGE, 1: 64 * PAGE}  # whole chunks of a memory pool, which takes 16 pages


@pytest.fixture
def machine(work: Path, request: pytest.FixtureRequest) -> Iterator[SimulatedGpus]:
    simulated = SimulatedGpus.create(
        work, machine_of(3, capability=9, cuda_version=getattr(request, "param", 12050))
    )
    yield simulated
    simulated.close()


WAYS = """
import os
from tests.native.programs import virtual_client as vm
P, device = vm.PAGE, int(os.environ.get("DEVICE", 0))
address, pitch, pool = vm.U64(), vm.SIZE(), ctypes.c_void_p()
out = ctypes.byref(address)
def rows(count):
    return vm.cuda.cuMemAllocPitch_v2(out, ctypes.byref(pitch), vm.SIZE(P // 4),
                                      vm.SIZE(4 * count), 4)
def from_pool(end, count):
    assert vm.cuda.cuDeviceGetMemPool(ctypes.byref(pool), device) == 0
    entry = getattr(vm.cuda, "cuMemAllocFromPoolAsync" + end)
    return entry(out, vm.SIZE(count * P), pool, None)
WAYS = {
    "cuMemAlloc_v2": lambda n: vm.cuda.cuMemAlloc_v2(out, vm.SIZE(n * P)),
    "cuMemAlloc": lambda n: vm.cuda.cuMemAlloc(out, n * P),
    "cuMemAllocManaged": lambda n: vm.cuda.cuMemAllocManaged(out, vm.SIZE(n * P), 1),
    "cuMemAllocPitch_v2": rows,
    "cuMemAllocAsync": lambda n: vm.cuda.cuMemAllocAsync(out, vm.SIZE(n * P), None),
    "cuMemAllocAsync_ptsz": lambda n: vm.cuda.cuMemAllocAsync_ptsz(out, vm.SIZE(n * P), None),
    "cuMemAllocFromPoolAsync": lambda n: from_pool("", n),
    "cuMemAllocFromPoolAsync_ptsz": lambda n: from_pool("_ptsz", n),
    "cuMemCreate": lambda n: vm.create(n * P, device)[0],
}
"""
NAMES = (
    "cuMemAlloc_v2",
    "cuMemAlloc",
    "cuMemAllocManaged",
    "cuMemAllocPitch_v2",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuMemCreate",
)


@pytest.mark.parametrize("way", NAMES)
async def test_each_way_to_allocate_is_held_to_the_limit_of_the_gpu_it_is_on(
    node: GpuNode, way: str
) -> None:
    container = await node.container(LIMITS)

    told = await container.run(
        WAYS
        + f"""
codes, totals = [], []
for device in (0, 1):
    assert vm.begin(device) == 0
    totals.append(vm.figures(vm.cuda)[1])
    pages = totals[-1] // P
    codes.append([WAYS[{way!r}](pages + 1), WAYS[{way!r}](pages), WAYS[{way!r}](1)])
tell(codes=codes, totals=totals)
"""
    )

    assert told == {"codes": [[2, 0, 2]] * 2, "totals": [*LIMITS.values()]}
    ((*accounts, other),) = accounts_by_gpu(node.gpus)
    assert [account.bytes_peak for account in accounts] == [*LIMITS.values()]
    assert other.bytes_peak == 0


ORDERS = [
    ("0,1", [0, 1]),
    ("1,0", [1, 0]),
    (f"{gpu_uuid(1)},{gpu_uuid(0)}", [1, 0]),
    (f"{gpu_uuid(1)}", [1]),
    ("1", [1]),
]


@pytest.mark.parametrize(("variable", "order"), ORDERS)
async def test_a_limit_follows_its_gpu_in_any_order_and_by_any_name(
    node: GpuNode, variable: str, order: list[int]
) -> None:
    container = await node.container(LIMITS)

    told = await container.run(
        WAYS
        + f"""
seen = []
for device in range({len(order)}):
    assert vm.begin(device) == 0
    size = vm.SIZE()
    assert vm.cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device) == 0
    codes = [way(1) for way in WAYS.values()]
    left = (size.value - vm.figures(vm.cuda)[0]) // P
    codes += [vm.create((left + 1) * P, device)[0], vm.create(left * P, device)[0]]
    seen.append([size.value, codes, WAYS["cuMemAlloc_v2"](1)])
tell(seen=seen)
""",
        CUDA_VISIBLE_DEVICES=variable,
    )

    codes = [*[0] * len(NAMES), 2, 0]
    assert told["seen"] == [[LIMITS[gpu], codes, 2] for gpu in order]
    (accounts,) = accounts_by_gpu(node.gpus)
    peaks = {gpu: accounts[gpu].bytes_peak for gpu in LIMITS}
    assert peaks == {gpu: LIMITS[gpu] if gpu in order else 0 for gpu in LIMITS}
    usage = node.manager.usage(AllocationID("one"))
    assert {each.limit.memory: each.peak for each in usage.devices} == {
        LIMITS[gpu]: peak for gpu, peak in peaks.items()
    }


async def test_memory_goes_to_the_gpu_it_names_and_not_to_the_current_one(node: GpuNode) -> None:
    container = await node.container(LIMITS)

    told = await container.run(
        WAYS
        + """
vm.begin(0)
codes = [vm.create(64 * P, 1)[0], vm.create(P, 1)[0], vm.create(32 * P, 0)[0], vm.held()]
vm.begin(1)
tell(codes=codes, held=vm.held())
"""
    )

    assert told == {"codes": [0, 2, 0, [32, 32]], "held": [64, 64]}


async def test_a_gpu_that_is_seen_but_not_granted_has_no_memory_to_give(node: GpuNode) -> None:
    container = await node.container({1: LIMITS[1]}, shown=[1, 2])

    told = await container.run(
        WAYS
        + """
context = vm.begin(0), vm.begin(1)
granted = [*{way(1) for way in WAYS.values()}]
driver, other, device = ctypes.CDLL("libvcuda-real.so.1"), ctypes.c_void_p(), 1
assert driver.cuCtxCreate_v2(ctypes.byref(other), 0, 1) == 0  # as the CUDA runtime could
codes = granted, [*{way(1) for way in WAYS.values()}]
tell(context=context, codes=codes, total=vm.figures(vm.cuda)[1])
"""
    )

    assert told == {"context": [0, 2], "codes": [[0], [2]], "total": 0}
    assert accounts_by_gpu(node.gpus)[0][2].bytes_peak == 0


async def test_containers_that_share_one_gpu_of_several_are_held_each_to_its_own(
    node: GpuNode,
) -> None:
    first = await node.container(LIMITS, name="first")
    second = await node.container({1: 5 * PAGE, 2: 40 * PAGE}, name="second")
    script = WAYS + (
        "codes = []\n"
        "for device, pages in enumerate((int(n) for n in os.environ['PAGES'].split())):\n"
        "    vm.begin(device)\n"
        "    codes += [vm.create(pages * P, device)[0], WAYS['cuMemAlloc_v2'](1)]\n"
        "tell(codes=codes)"
    )

    told = [await first.run(script, PAGES="32 64"), await second.run(script, PAGES="5 40")]

    assert told == [{"codes": [0, 2, 0, 2]}] * 2
    peaks = [[use.bytes_peak // PAGE for use in uses] for uses in accounts_by_gpu(node.gpus)]
    assert peaks == [[32, 64, 0], [0, 5, 40]]


@pytest.mark.parametrize(
    ("machine", "bind"),
    [
        (12050, "vm.bind(object, memory, 4 * P)"),
        (13040, "vm.bind_on(device, object, memory, 4 * P)"),
        (13040, "vm.bind_at_on(device, object, address, 4 * P)"),
    ],
    indirect=["machine"],
)
async def test_multicast_binds_memory_of_each_gpu_and_gives_each_its_own_back(
    node: GpuNode, bind: str
) -> None:
    container = await node.container(LIMITS)

    told = await container.run(
        WAYS
        + f"""
vm.cuda.cuInit(0)
_, object = vm.multicast(8 * P, 2)
codes = []
for device in (0, 1):
    size = (4 + device) * P
    _, memory = vm.create(size, device)
    address = vm.reserve(size)
    assert vm.map_at(address, size, memory) == 0
    codes += [vm.join(object, device), {bind}]
    assert vm.unmap(address, size) == 0
    codes += [vm.release(memory)]
held = lambda: [(vm.begin(device), vm.held())[1] for device in (0, 1)]
seen = [held()]
codes.append(vm.unbind(object, 1, 4 * P))
seen.append(held())
codes.append(vm.release(object))
tell(codes=codes, seen=[*seen, held()])
""",
        CUDA_VISIBLE_DEVICES="1,0",
    )

    assert told["codes"] == [0] * 8
    assert told["seen"] == [[[4, 4], [5, 5]], [[4, 4], [0, 0]], [[0, 0], [0, 0]]]

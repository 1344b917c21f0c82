"""What the driver takes by itself, through the shim over the simulated driver: heaps, and all of it
together, are in the books to the byte, by the driver's own account."""

import asyncio
from collections.abc import Mapping

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.units import GIB, MIB
from tests.native.measured_node import CLIENT, CONTEXT, LIMIT, MeasuredNode, eventually

pytestmark = pytest.mark.namespaces

PAGE = 2 * MIB


RULES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "the first look at the memory shows what the context took": (
        "make(); tell(memory=memory(driver))",
        {"memory": [LIMIT - CONTEXT, LIMIT]},
    ),
    "a further context is charged with what it took": (
        "create(); create(); tell(free=memory(driver)[0])",
        {"free": LIMIT - CONTEXT - CONTEXT // 4, "peak": CONTEXT + CONTEXT // 4},
    ),
    "a context that was attached to is given back when the last one detaches": (
        f"""
context, attached = create(), ctypes.c_void_p()
assert allocate(driver, {64 * MIB})[0] == SUCCESS
assert driver.cuCtxAttach(ctypes.byref(attached), 0) == SUCCESS
assert driver.cuCtxDetach(context) == SUCCESS
still = memory(driver)[0]
assert driver.cuCtxDetach(context) == SUCCESS
create()
tell(still=still, again=memory(driver)[0])
""",
        {"still": LIMIT - CONTEXT - 64 * MIB, "again": LIMIT - CONTEXT},
    ),
    "memory can be taken to the last byte beside the driver's own": (
        """
make()
left = memory(driver)[0]
tell(all=allocate(driver, left)[0], more=allocate(driver, 1)[0], free=memory(driver)[0])
""",
        {"all": 0, "more": 2, "free": 0, "peak": LIMIT},
    ),
    "a module is charged with its variables until it is unloaded": (
        f"""
make()
module = load({100 * MIB})
loaded = memory(driver)[0]
assert driver.cuModuleUnload(module) == SUCCESS
tell(loaded=loaded, unloaded=memory(driver)[0])
""",
        {
            "loaded": LIMIT - CONTEXT - 102 * MIB,  # the variable, and a page for the code
            "unloaded": LIMIT - CONTEXT,
        },
    ),
    "a cubin beyond the limit is refused before the driver sees it": (
        f"make(); tell(big=try_load_image(cubin({LIMIT}))[0])",
        {"big": 2, "peak": CONTEXT},
    ),
    "what no image tells is measured and undone beyond the limit": (
        f"""
make()
assert allocate(driver, memory(driver)[0] - {2 * MIB})[0] == SUCCESS
tell(big=try_load_image(fat({3 * MIB}))[0], free=memory(driver)[0])
""",
        {"big": 2, "free": 2 * MIB, "peak": LIMIT + PAGE},
    ),
    "a kernel of a library is asked for and its library counts": (
        f"""
driver.cuInit(0)
library, kernel, function = load_library({MIB}), ctypes.c_void_p(), ctypes.c_void_p()
create()
assert driver.cuLibraryGetKernel(ctypes.byref(kernel), library, b"k") == SUCCESS
before = memory(driver)[0]
assert driver.cuKernelGetFunction(ctypes.byref(function), kernel) == SUCCESS
loaded = memory(driver)[0]
assert driver.cuLibraryUnload(library) == SUCCESS
time.sleep(0.06)
tell(taken=before - loaded)
""",
        {"taken": PAGE},
    ),
    "a larger heap is charged and one beyond the limit is refused": (
        f"""
make()
free = memory(driver)[0]
heap = lambda size: driver.cuCtxSetLimit(2, ctypes.c_size_t(size))
larger = heap({108 * MIB}), free - memory(driver)[0]
stack = driver.cuCtxSetLimit(0, ctypes.c_size_t({1 * MIB}))
tell(larger=larger, beyond=heap({LIMIT}), stack=stack, still=free - memory(driver)[0])
""",
        {"larger": [0, 100 * MIB], "beyond": 2, "stack": 2, "still": 100 * MIB},
    ),
    "what the driver refuses it refuses in its own words": (
        """
early = [try_retain_uninitialised(), driver.cuCtxCreate_v2(None, 0, 0)]
context = ctypes.c_void_p()
driver.cuInit(0)
wrong = driver.cuCtxCreate_v2(ctypes.byref(context), 0, 7), driver.cuCtxCreate_v2(None, 0, 0)
primary = driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 7)
released = driver.cuDevicePrimaryCtxRelease_v2(0), driver.cuDevicePrimaryCtxRelease_v2(7)
destroyed = driver.cuCtxDestroy_v2(None), driver.cuCtxDestroy(None)
create()
image = driver.cuModuleLoadData(ctypes.byref(context), None), driver.cuModuleLoad(None, None)
missing = driver.cuModuleLoad(ctypes.byref(context), b"/nowhere")
limit = driver.cuCtxSetLimit(99, ctypes.c_size_t(1))
tell(early=early, wrong=wrong, primary=primary, released=released, destroyed=destroyed,
     image=image, missing=missing, limit=limit, memory=memory(driver)[0])
""",
        {
            "early": [3, 3],
            "wrong": [101, 1],
            "primary": 101,
            "released": [201, 101],
            "destroyed": [201, 201],
            "image": [1, 1],
            "missing": 301,
            "limit": 1,
            "memory": LIMIT - CONTEXT,
        },
    ),
    "every entry point is also found by its name": (
        """
driver.cuInit(0)
names = {
    "cuCtxCreate": [(3010, ""), (4000, "_v2"), (11040, "_v3"), (12050, "_v4")],
    "cuCtxDestroy": [(3010, ""), (4000, "_v2")],
    "cuDevicePrimaryCtxRelease": [(7000, ""), (11000, "_v2")],
    "cuDevicePrimaryCtxReset": [(7000, ""), (11000, "_v2")],
    **{name: [(12050, "")] for name in (
        "cuDevicePrimaryCtxRetain", "cuCtxSetLimit", "cuModuleLoad", "cuModuleLoadData",
        "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleUnload", "cuLibraryLoadData",
        "cuLibraryLoadFromFile", "cuLibraryUnload", "cuLibraryGetModule", "cuKernelGetFunction")},
}
wrong = [
    (name, version)
    for name, versions in names.items()
    for version, suffix in versions
    if entry(driver, name, version)[1] != address_of(getattr(driver, name + suffix))
]
tell(wrong=wrong)
""",
        {"wrong": []},
    ),
    "a child of fork pays for its own context": (
        """
import os
make()
told, teller = os.pipe()
if os.fork() == 0:
    make()
    os.write(teller, str(memory(driver)[0]).encode())
    os._exit(0)
theirs = int(os.read(told, 99))
os.wait()
tell(theirs=theirs)
""",
        {"theirs": LIMIT - 2 * CONTEXT},
    ),
    "what a program exports and lets go of it cannot import beyond the limit": (
        """
from tests.native.programs import virtual_client as vm
make()
codes, taken = [], []
for _ in range(4):
    code, handle = vm.create(1 << 30, shared=True)
    exported = vm.export(handle) if code == 0 else None
    codes.append([code, vm.release(handle) if code == 0 else None])
    if exported is not None:
        taken.append(vm.take(exported))
        codes[-1].append(taken[-1][0])
before = memory(driver)[0]
codes.append([vm.release(handle) for code, handle in taken if code == 0])
again = vm.create(1 << 30)[0]
tell(codes=codes, before=before, again=again)
""",
        {
            "codes": [[0, 0, 0], *[[2, None]] * 3, [0]],
            "before": LIMIT - CONTEXT - GIB,
            "again": 0,
            "peak": CONTEXT + GIB,
        },
    ),
}
"""The rule, a program that keeps to it, and what it tells; `peak` is the most that it held."""


@pytest.mark.parametrize("rule", RULES)
async def test_what_the_driver_takes_by_itself_is_in_the_books(
    measured: MeasuredNode, rule: str
) -> None:
    script, expected = RULES[rule]

    told = await measured.run(script)

    peak = measured.account().bytes_peak
    assert {"peak": peak} | told == {"peak": peak, **expected}
    assert "peak" in expected or peak <= LIMIT


async def test_threads_that_load_and_allocate_at_once_leave_exact_books(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        """
import random, threading, time
make()
current = ctypes.c_void_p()
driver.cuCtxGetCurrent(ctypes.byref(current))
free_before, failures = memory(driver)[0], []
def work(seed):
    choice = random.Random(seed)
    driver.cuCtxSetCurrent(current)
    for _ in range(20):
        if choice.random() < 0.5:
            result, address = allocate(driver, choice.randrange(1, 1 << 28))
            if result == SUCCESS and free(driver, address) != SUCCESS:
                failures.append("free")
        else:
            result, module = try_load("cuModuleLoadData", choice.randrange(1 << 26))
            if result == SUCCESS:
                unload("cuModuleLoadData", module)
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
end = time.monotonic() + 60
while (left := free_before - memory(driver)[0]) and time.monotonic() < end:
    time.sleep(0.1)  # estimates stand while nobody measures, as on a machine that is busy
tell(left=left, failures=failures)
"""
    )

    assert told == {"left": 0, "failures": []}
    assert measured.account().bytes_peak <= LIMIT


async def test_a_dead_process_leaves_no_overhead(measured: MeasuredNode) -> None:
    await measured.run("make()")

    assert await eventually(lambda: measured.held() == 0)


async def test_a_gpu_that_is_not_granted_has_no_room_for_a_context(measured: MeasuredNode) -> None:
    other = GpuUUID("GPU-00000000-0000-0000-0000-0000000000ff")
    container = await measured.container(gpu=other)

    told = await container.run(CLIENT + "tell(create=try_create(), retain=try_retain())")

    assert told == {"create": [2, None], "retain": [2, None]}


@pytest.mark.parametrize("seed", range(4))
async def test_a_history_of_everything_never_exceeds_the_limit_and_ends_exact(
    measured: MeasuredNode, seed: int
) -> None:
    """Contexts, modules, heaps and allocations by turns, at the limit."""
    limit = 3 * CONTEXT
    await measured.run("make()")  # so that the size of a context is known

    told = await measured.run(
        f"tell(wrong=history({seed}, {limit}, ledger_of_driver))", memory=limit
    )

    assert told == {"wrong": []}
    assert measured.account().bytes_peak <= limit


async def test_processes_that_race_for_the_last_bytes_never_exceed_the_limit(
    measured: MeasuredNode,
) -> None:
    """Each takes contexts, modules and memory until refused, gives some back and begins anew."""
    limit = 4 * CONTEXT
    await measured.run("make()")  # so that the size of a context is known
    sampling = asyncio.create_task(measured.manager.measure_every(0.02))

    told = await measured.run(
        """
import subprocess, sys
words = "from tests.native.programs.shim_client import *\\n"
words += "from tests.native.programs.overhead_client import *\\ntell(**race({}, 1.5))"
start = lambda seed: subprocess.Popen([sys.executable, "-c", words.format(seed)],
                                      stdout=subprocess.PIPE, text=True)
children = [start(seed) for seed in range(5)]
tell(did=[json.loads(child.communicate()[0]) for child in children])
""",
        memory=limit,
    )

    sampling.cancel()
    assert all(did["contexts"] > 0 for did in told["did"])
    assert any(did["refused"] > 0 for did in told["did"])
    assert limit // 2 < measured.account().bytes_peak <= limit
    assert await eventually(lambda: measured.held() == 0)


async def test_an_import_over_the_limit_is_undone_and_refused(measured: MeasuredNode) -> None:
    told = await measured.run(
        """
from tests.native.programs import virtual_client as vm
make()
_, handle = vm.create(1 << 30, shared=True)
exported = vm.export(handle)
vm.release(handle)
_, other = vm.create(1 << 30)
refused = vm.take(exported)
left = memory(driver)[0]
vm.release(other)
tell(refused=refused, left=left, taken=vm.take(exported)[0], end=memory(driver)[0])
"""
    )

    assert told["refused"] == [2, 0]
    assert told["left"] == LIMIT - CONTEXT - GIB
    assert (told["taken"], told["end"]) == (0, LIMIT - CONTEXT - GIB)
    assert measured.held() == 0


async def test_pages_that_arrays_were_charged_too_much_hide_nothing_of_the_drivers(
    measured: MeasuredNode,
) -> None:
    """Of 34 arrays 32 lie in one page. A module is measured when two pages are charged for the 32.
    Once they are charged as one, the driver's own is more than was known by then."""
    told = await measured.run(
        """
from tests.native.programs.array_words import U8, create, destroy
make()
arrays = [create(driver, 256, 256, kind=U8)[1] for _ in range(34)]
for one in arrays[32:]:
    assert destroy(driver, one) == SUCCESS
load(MIB)
for one in arrays[1:32]:
    assert destroy(driver, one) == SUCCESS
pages = 0
while allocate(driver, PAGE)[0] == SUCCESS:
    pages += 1
tell(pages=pages)
""".replace("MIB", str(MIB)).replace("PAGE", str(PAGE))
    )

    assert measured.account().bytes_peak == LIMIT
    assert told["pages"] * PAGE < LIMIT - CONTEXT

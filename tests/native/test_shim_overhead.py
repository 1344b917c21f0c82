"""What the driver takes by itself, through the shim over the simulated driver: contexts, modules
and heaps are in the books to the byte, by the driver's own account."""

import asyncio

import pytest
from measured_node import CLIENT, CONTEXT, LIMIT, NAME, MeasuredNode, eventually
from shim_container import reached

from gpumanager.gpu.values import GpuUUID
from gpumanager.units import GIB, MIB
from vcuda_shim._shim import lib

pytestmark = pytest.mark.namespaces


async def test_the_first_look_at_the_memory_shows_what_the_context_took(
    measured: MeasuredNode,
) -> None:
    told = await measured.run("make(); tell(memory=memory(driver))")

    assert told["memory"] == [LIMIT - CONTEXT, LIMIT]


@pytest.mark.parametrize("variant", ["", "_v2", "_v3", "_v4"])
async def test_every_way_to_make_a_context_is_charged_and_given_back(
    measured: MeasuredNode, variant: str
) -> None:
    told = await measured.run(
        f"""
context = create({variant!r})
with_one, first = memory(driver)[0], allocate(driver, {64 * MIB})[0]
loaded = memory(driver)[0]
assert driver.cuCtxDestroy{"" if variant in ("", "_v3") else "_v2"}(context) == SUCCESS
create({variant!r})
tell(with_one=with_one, first=first, loaded=loaded, again=memory(driver)[0])
"""
    )

    free = LIMIT - CONTEXT
    assert told == {"with_one": free, "first": 0, "loaded": free - 64 * MIB, "again": free}


async def test_a_further_context_is_charged_with_what_it_took(measured: MeasuredNode) -> None:
    told = await measured.run("create(); create(); tell(free=memory(driver)[0])")

    assert told["free"] == LIMIT - CONTEXT - CONTEXT // 4
    assert measured.account().bytes_peak == CONTEXT + CONTEXT // 4


async def test_a_context_that_was_attached_to_is_given_back_when_the_last_one_detaches(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"""
context, attached = create(), ctypes.c_void_p()
assert allocate(driver, {64 * MIB})[0] == SUCCESS
assert driver.cuCtxAttach(ctypes.byref(attached), 0) == SUCCESS
assert driver.cuCtxDetach(context) == SUCCESS
still = memory(driver)[0]
assert driver.cuCtxDetach(context) == SUCCESS
create()
tell(still=still, again=memory(driver)[0])
"""
    )

    assert told == {"still": LIMIT - CONTEXT - 64 * MIB, "again": LIMIT - CONTEXT}


@pytest.mark.parametrize(
    "end",
    [
        "cuDevicePrimaryCtxRelease",
        "cuDevicePrimaryCtxRelease_v2",
        "cuDevicePrimaryCtxReset",
        "cuDevicePrimaryCtxReset_v2",
    ],
)
async def test_a_primary_context_gives_all_back_when_its_last_user_leaves(
    measured: MeasuredNode, end: str
) -> None:
    told = await measured.run(
        f"""
retain(); retain()
assert allocate(driver, {64 * MIB})[0] == SUCCESS
between = memory(driver)[0]
assert driver.{end}(0) == SUCCESS
still = memory(driver)[0] if "Release" in {end!r} else between
if "Release" in {end!r}:
    assert driver.{end}(0) == SUCCESS
retain()
tell(between=between, still=still, again=memory(driver)[0])
"""
    )

    assert told["between"] == told["still"] == LIMIT - CONTEXT - 64 * MIB
    assert told["again"] == LIMIT - CONTEXT


async def test_memory_can_be_taken_to_the_last_byte_beside_the_drivers_own(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        """
make()
left = memory(driver)[0]
tell(all=allocate(driver, left)[0], more=allocate(driver, 1)[0], free=memory(driver)[0])
"""
    )

    assert told == {"all": 0, "more": 2, "free": 0}
    assert measured.account().bytes_peak == LIMIT


async def test_a_limit_below_the_known_size_of_a_context_refuses_it_untried(
    measured: MeasuredNode,
) -> None:
    await measured.run("make()")

    told = await measured.run(
        "result, context = try_create(); tell(result=result, context=context)",
        memory=CONTEXT - 1,
    )

    assert told == {"result": 2, "context": None}
    assert measured.account().bytes_peak == 0
    assert measured.manager.usage(NAME).devices[0].denied == 1


async def test_a_context_of_unknown_size_beyond_the_limit_is_undone(measured: MeasuredNode) -> None:
    told = await measured.run(
        """
first = try_create()
first_primary = try_retain()
tell(first=first, primary=first_primary)
""",
        memory=CONTEXT - 1,
    )

    assert told == {"first": [2, None], "primary": [2, None]}
    assert measured.account().bytes_now == 0


async def test_two_processes_see_each_others_contexts(measured: MeasuredNode) -> None:
    told = await measured.run(
        """
import subprocess, sys
make()
alone = memory(driver)[0]
words = "make(); print(memory(driver)[0], flush=True); input()"
clients = "from shim_client import *; from overhead_client import *; "
child = subprocess.Popen([sys.executable, "-c", clients + words],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
theirs = int(child.stdout.readline())
ours = memory(driver)[0]
child.communicate("\\n")
end = time.monotonic() + 1
while memory(driver)[0] != alone and time.monotonic() < end:
    time.sleep(0.005)
tell(alone=alone, theirs=theirs, ours=ours, after=memory(driver)[0])
"""
    )

    both = LIMIT - 2 * CONTEXT
    assert told == {
        "alone": LIMIT - CONTEXT,
        "theirs": both,
        "ours": both,
        "after": LIMIT - CONTEXT,
    }


async def test_a_module_is_charged_with_its_variables_until_it_is_unloaded(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"""
make()
module = load({100 * MIB})
loaded = memory(driver)[0]
assert driver.cuModuleUnload(module) == SUCCESS
tell(loaded=loaded, unloaded=memory(driver)[0])
"""
    )

    code = 64 * 1024
    assert told == {
        "loaded": LIMIT - CONTEXT - 100 * MIB - code,
        "unloaded": LIMIT - CONTEXT,
    }


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

    assert told == {"big": [2, None], "small": 0, "between": MIB + 64 * 1024, "after": 0}
    assert measured.account().bytes_peak <= LIMIT


async def test_a_cubin_beyond_the_limit_is_refused_before_the_driver_sees_it(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(f"make(); tell(big=try_load_image(cubin({LIMIT}))[0])")

    assert told == {"big": 2}
    assert measured.account().bytes_peak == CONTEXT


async def test_what_no_image_tells_is_measured_and_undone_beyond_the_limit(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"""
make()
assert allocate(driver, memory(driver)[0] - {MIB})[0] == SUCCESS
tell(big=try_load_image(fat({2 * MIB}))[0], free=memory(driver)[0])
"""
    )

    assert told == {"big": 2, "free": MIB}


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

    assert told["before"] - told["after"] == 10 * MIB + 64 * 1024


async def test_a_larger_heap_is_charged_and_one_beyond_the_limit_is_refused(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"""
make()
free = memory(driver)[0]
heap = lambda size: driver.cuCtxSetLimit(2, ctypes.c_size_t(size))
larger = heap({108 * MIB}), free - memory(driver)[0]
stack = driver.cuCtxSetLimit(0, ctypes.c_size_t({1 * MIB}))
tell(larger=larger, beyond=heap({LIMIT}), stack=stack, still=free - memory(driver)[0])
"""
    )

    assert told == {"larger": [0, 100 * MIB], "beyond": 2, "stack": 2, "still": 100 * MIB}


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

    assert told["taken"] == 200 * 64 * 1024
    assert measured.meter.passes < 100


async def test_threads_that_load_and_allocate_at_once_leave_exact_books(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        """
import random, threading
make()
current = ctypes.c_void_p()
driver.cuCtxGetCurrent(ctypes.byref(current))
free_before, failures = memory(driver)[0], []
def work(seed):
    choice = random.Random(seed)
    driver.cuCtxSetCurrent(current)
    for _ in range(40):
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
tell(left=free_before - memory(driver)[0], failures=failures)
"""
    )

    assert told == {"left": 0, "failures": []}
    assert measured.account().bytes_peak <= LIMIT


async def test_without_an_answer_the_estimate_stands_and_nothing_hangs(
    measured: MeasuredNode,
) -> None:
    await measured.run("make()")  # so that the size of a context is known
    container = await measured.container()
    script = f"""
driver.cuInit(0)
reach({str(measured.work / "begun")!r})
wait_for({str(measured.work / "away")!r})
begun = time.monotonic()
create()
first = time.monotonic() - begun
begun = time.monotonic()
for _ in range(200):
    memory(driver)
seen, calls = memory(driver)[0], time.monotonic() - begun
reach({str(measured.work / "seen")!r})
wait_for({str(measured.work / "back")!r})
create()
end = time.monotonic() + 2
while memory(driver)[0] != {LIMIT - CONTEXT - CONTEXT // 4} and time.monotonic() < end:
    time.sleep(0.02)
tell(first=first, seen=seen, calls=calls, back=memory(driver)[0])
"""
    running = asyncio.create_task(container.run(CLIENT + script))
    await reached(measured.work / "begun", running)
    await measured.manager.stop()
    (measured.work / "away").touch()
    await reached(measured.work / "seen", running)
    measured.manager = measured.new_manager()
    await measured.container()
    (measured.work / "back").touch()
    told = await running

    assert told["seen"] == LIMIT - CONTEXT
    assert told["back"] == LIMIT - CONTEXT - CONTEXT // 4
    assert told["first"] < 1.8
    assert told["calls"] < 1.0


async def test_where_the_driver_does_not_tell_the_estimate_stands(measured: MeasuredNode) -> None:
    await measured.run("make()")
    measured.meter.fails = True

    told = await measured.run("make(); tell(free=memory(driver)[0])")

    assert told["free"] == LIMIT - CONTEXT


async def test_a_regular_measurement_puts_an_estimate_right(measured: MeasuredNode) -> None:
    await measured.run("make()")
    container = await measured.container()
    measured.meter.fails = True
    running = asyncio.create_task(
        container.run(
            CLIENT
            + f"""
create(); create()
reach({str(measured.work / "made")!r})
wait_for({str(measured.work / "measured")!r})
tell(free=memory(driver)[0])
"""
        )
    )
    await reached(measured.work / "made", running)
    estimated = measured.held()
    (process,) = measured.manager.usage(NAME).processes
    measured.meter.fails = False
    await measured.manager.measure()
    await measured.manager.measure()
    (measured.work / "measured").touch()
    told = await running

    assert estimated == 2 * CONTEXT
    assert process.degraded == lib.VCUDA_DEGRADED_MEASURE
    assert told["free"] == LIMIT - CONTEXT - CONTEXT // 4


async def test_an_unhooked_context_is_noticed_at_the_first_look_at_the_memory(
    measured: MeasuredNode,
) -> None:
    await measured.run("make()")

    told = await measured.run(
        """
behind_the_shim()
tell(free=memory(driver)[0])
"""
    )

    assert told["free"] == LIMIT - CONTEXT


async def test_an_unhooked_context_is_noticed_at_the_first_allocation(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        f"behind_the_shim(); tell(result=allocate(driver, {LIMIT - CONTEXT + 1})[0])"
    )

    assert told == {"result": 2}
    assert measured.account().bytes_peak == CONTEXT


async def test_a_dead_process_leaves_no_overhead(measured: MeasuredNode) -> None:
    await measured.run("make()")

    assert await eventually(lambda: measured.held() == 0)


async def test_what_the_driver_refuses_it_refuses_in_its_own_words(measured: MeasuredNode) -> None:
    told = await measured.run(
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
"""
    )

    assert told == {
        "early": [3, 3],
        "wrong": [101, 1],
        "primary": 101,
        "released": [201, 101],
        "destroyed": [201, 201],
        "image": [1, 1],
        "missing": 301,
        "limit": 1,
        "memory": LIMIT - CONTEXT,
    }


async def test_a_gpu_that_is_not_granted_has_no_room_for_a_context(measured: MeasuredNode) -> None:
    other = GpuUUID("GPU-00000000-0000-0000-0000-0000000000ff")
    container = await measured.container(gpu=other)

    told = await container.run(CLIENT + "tell(create=try_create(), retain=try_retain())")

    assert told == {"create": [2, None], "retain": [2, None]}


async def test_every_entry_point_is_also_found_by_its_name(measured: MeasuredNode) -> None:
    told = await measured.run(
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
"""
    )

    assert told == {"wrong": []}


async def test_a_kernel_of_a_library_is_asked_for_and_its_library_counts(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
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
"""
    )

    assert told == {"taken": MIB + 64 * 1024}


async def test_a_child_of_fork_pays_for_its_own_context(measured: MeasuredNode) -> None:
    told = await measured.run(
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
"""
    )

    assert told == {"theirs": LIMIT - 2 * CONTEXT}


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
words = "from shim_client import *; from overhead_client import *; tell(**race({}, 1.5))"
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


async def test_what_a_program_exports_and_lets_go_of_it_cannot_import_beyond_the_limit(
    measured: MeasuredNode,
) -> None:
    told = await measured.run(
        """
import virtual_client as vm
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
"""
    )

    assert told["codes"] == [[0, 0, 0], *[[2, None]] * 3, [0]]
    assert told["before"] == LIMIT - CONTEXT - GIB
    assert told["again"] == 0
    assert measured.account().bytes_peak == CONTEXT + GIB


async def test_an_import_over_the_limit_is_undone_and_refused(measured: MeasuredNode) -> None:
    told = await measured.run(
        """
import virtual_client as vm
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

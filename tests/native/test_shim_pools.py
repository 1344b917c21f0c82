"""Pools behind the shim, over the simulated driver: charged for what they hold, to the byte."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from one_gpu import LIMIT, GpuNode, SimulatedGpu
from shim_container import Container

from gpumanager.units import MIB
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.values import AllocationID

pytestmark = pytest.mark.namespaces

CHUNK = 32 * MIB
BEGIN = f"""
from pool_client import *
pools = LimitedPools({LIMIT})
default = pools.default()
"""


@pytest.fixture
async def container(one_gpu: GpuNode) -> Container:
    return await one_gpu.container("one", 100)


@pytest.fixture
def denied(manager: VirtualSockets) -> Callable[[], int]:
    return lambda: manager.usage(AllocationID("one")).devices[0].denied


async def told(container: Container, script: str) -> dict[str, Any]:
    return await container.run(BEGIN + script)


async def test_what_a_pool_keeps_is_charged_until_it_goes_back(container: Container) -> None:
    answer = await told(
        container,
        """
address = pools.had(MIB)
held = pools.both()
pools.free(address)
kept = pools.both()
pools.sync()
tell(held=held, kept=kept, gone=pools.both())
""",
    )

    assert answer == {"held": [CHUNK, CHUNK], "kept": [CHUNK, CHUNK], "gone": [0, 0]}


@pytest.mark.parametrize(
    "wait",
    [
        "cuStreamSynchronize(None)",
        "cuStreamSynchronize_ptsz(None)",
        "cuCtxSynchronize()",
        "cuEventSynchronize(event)",
        "cuMemPoolTrimTo(default, ctypes.c_size_t(0))",
    ],
)
async def test_whoever_waits_or_trims_sees_the_memory_back_at_once(
    container: Container, gpu: SimulatedGpu, manager: VirtualSockets, wait: str
) -> None:
    answer = await told(
        container,
        f"""
event = ctypes.c_void_p()
assert pools.driver.cuEventCreate(ctypes.byref(event), 0) == 0
pools.free(pools.had(MIB))
assert pools.driver.cuEventRecord(event, None) == 0
assert pools.driver.{wait} == 0
other = subprocess.run([sys.executable, "-c", '''
from pool_client import *
print(LimitedPools({LIMIT}).books())
'''], capture_output=True, text=True)
tell(seen_by_another=other.stdout + other.stderr)
""".replace("event = ", "import subprocess, sys\nevent = ", 1),
    )

    assert answer["seen_by_another"].strip() == "0"


async def test_memory_above_the_release_threshold_alone_goes_back(container: Container) -> None:
    answer = await told(
        container,
        f"""
pools.put(default, THRESHOLD, {CHUNK})
for address in [pools.had({CHUNK}) for _ in range(3)]:
    pools.free(address)
pools.sync()
kept = pools.both()
pools.trim(default, {CHUNK})
same = pools.both()
pools.trim(default)
tell(kept=kept, same=same, gone=pools.both())
""",
    )

    assert answer == {"kept": [CHUNK, CHUNK], "same": [CHUNK, CHUNK], "gone": [0, 0]}


async def test_a_pool_gives_back_what_it_keeps_before_anything_else_is_refused(
    container: Container, gpu: SimulatedGpu, denied: Callable[[], int]
) -> None:
    answer = await told(
        container,
        f"""
pools.put(default, THRESHOLD, 1 << 62)
pool = pools.made()
pools.put(pool, THRESHOLD, 1 << 62)
for where in (default, pool):
    pools.free(pools.had({LIMIT // 2}, None, where))
pools.sync()
full = pools.both()
first = pools.plain({LIMIT})
again = pools.free_now(first[1]), pools.alloc({LIMIT}, None, pool)[0]
tell(full=full, first=first[0], again=again, beyond=pools.alloc(1)[0])
""",
    )

    assert answer == {"full": [LIMIT, LIMIT], "first": 0, "again": [0, 0], "beyond": 2}
    (account,) = gpu.tenants()
    assert account.peak_bytes == LIMIT
    assert denied() == 1


async def test_what_a_full_pool_has_inside_is_not_refused_and_what_would_make_it_grow_is(
    container: Container, gpu: SimulatedGpu
) -> None:
    answer = await told(
        container,
        f"""
pools.fill({CHUNK})
stream, other = pools.stream(), pools.stream()
stays = pools.had(MIB, stream)
pieces = [pools.had(5 * MIB, stream) for _ in range(2)]
rest = pools.alloc(21 * MIB, stream)[0]
full = pools.alloc(1, stream)[0]
pools.spin(stream, 20_000_000)
for address in pieces:
    pools.free(address, stream)
elsewhere = pools.alloc(10 * MIB, other)[0]
joined = pools.alloc(10 * MIB, stream)
pools.free(joined[1], stream)
pools.sync(stream)
later = pools.alloc(10 * MIB, other)[0]
tell(rest=rest, full=full, elsewhere=elsewhere, joined=joined[0], later=later, both=pools.both())
""",
    )

    assert (answer["rest"], answer["full"]) == (0, 2)
    assert (answer["elsewhere"], answer["joined"], answer["later"]) == (2, 0, 0)
    assert answer["both"] == [LIMIT, LIMIT]
    assert gpu.tenants()[0].peak_bytes == LIMIT


async def test_room_for_less_than_a_pool_grows_by_is_refused(
    container: Container, gpu: SimulatedGpu
) -> None:
    answer = await told(
        container,
        f"""
pools.fill({CHUNK} - 1)
tell(result=pools.alloc(1)[0], plain=pools.plain({CHUNK} - 1)[0])
""",
    )

    assert answer == {"result": 2, "plain": 0}
    assert gpu.tenants()[0].peak_bytes == LIMIT


async def test_growth_that_nobody_foresaw_is_undone_and_refused(
    container: Container, denied: Callable[[], int]
) -> None:
    answer = await told(
        container,
        """
pools.fill(32 * MIB)
first, second = pools.had(MIB), pools.had(31 * MIB)
pools.free(second)
stolen, size = ctypes.c_uint64(), ctypes.c_size_t(31 * MIB)
assert pools.real.cuMemAllocAsync(ctypes.byref(stolen), size, None) == 0
result = pools.alloc(31 * MIB)[0]
tell(result=result, both=pools.both())
""",
    )

    assert answer == {"result": 2, "both": [LIMIT, LIMIT]}
    assert denied() == 1


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


async def test_an_answer_of_the_driver_other_than_success_costs_nothing(
    container: Container,
) -> None:
    answer = await told(
        container,
        """
pool = pools.made(largest=32 * MIB)
driver, nothing = pools.driver, ctypes.c_size_t(MIB)
results = [pools.alloc(0)[0], pools.alloc(33 * MIB, None, pool)[0],
           driver.cuMemAllocAsync(None, nothing, None),
           driver.cuMemAllocFromPoolAsync(None, nothing, pool, None),
           driver.cuMemPoolCreate(None, None), pools.free(12345), pools.make(place=9)[0]]
gone = pools.made()
pools.destroy(gone)
results.append(pools.alloc(1, None, gone)[0])
tell(results=results, both=pools.both())
""",
    )

    assert answer == {"results": [1, 2, 1, 1, 1, 1, 1, 1], "both": [0, 0]}


async def test_either_way_to_free_gives_back_what_was_allocated_the_other_way(
    container: Container,
) -> None:
    answer = await told(
        container,
        """
results = [pools.free_now(pools.had(MIB)), pools.free(pools.plain(5)[1])]
kept = pools.both()
pools.sync()
tell(results=results, kept=kept, gone=pools.both())
""",
    )

    assert answer == {"results": [0, 0], "kept": [CHUNK, CHUNK], "gone": [0, 0]}


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


@pytest.mark.parametrize("suffix", ["", "_ptsz"])
async def test_every_form_by_name_and_by_address_is_charged(
    container: Container, suffix: str
) -> None:
    answer = await told(
        container,
        f"""
suffix, flags = {suffix!r}, 2 if {suffix!r} else 1
result, address = pools.alloc(MIB, None, None, suffix)
from_pool = pools.alloc(MIB, None, default, suffix)
held = pools.both()
freed = [pools.free(address, None, suffix), pools.free(from_pool[1], None, suffix)]
getattr(pools.driver, "cuStreamSynchronize" + suffix)(None)
names = ["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuStreamSynchronize"]
def is_hook(name, suffix=""):
    asked = entry(pools.driver, name, 12050, flags)[1]
    return asked == address_of(getattr(pools.driver, name + suffix))
same = [is_hook(name, suffix) for name in names]
plain = ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemPoolSetAttribute",
         "cuMemPoolImportFromShareableHandle", "cuEventSynchronize", "cuCtxSynchronize"]
same += [is_hook(name) for name in plain]
real = [address_of(getattr(pools.real, name)) == address_of(getattr(pools.driver, name))
        for name in plain]
tell(results=[result, from_pool[0]], held=held, freed=freed, gone=pools.both(), same=all(same),
     real=any(real))
""",
    )

    assert (answer["results"], answer["freed"]) == ([0, 0], [0, 0])
    assert (answer["held"], answer["gone"]) == ([CHUNK, CHUNK], [0, 0])
    assert (answer["same"], answer["real"]) == (True, False)


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


HISTORY = """
import threading
_, filler = pools.plain({limit} - {leave})
histories = [History(pools, {seed} * 100 + number) for number in range({threads})]
failures = []
def run(history):
    try:
        history.run({steps})
    except BaseException as error:
        failures.append(repr(error))
threads = [threading.Thread(target=run, args=[history]) for history in histories]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert failures == [], failures
assert pools.driver.cuCtxSynchronize() == 0
quiet = pools.both()
for history in histories:
    for address in history.held:
        assert pools.free_now(address) == 0
    assert pools.destroy(history.made[1]) == 0
pools.put(default, THRESHOLD, 0)
assert pools.driver.cuCtxSynchronize() == 0
assert pools.free_now(filler) == 0
tell(quiet=quiet, results=sorted(set().union(*(history.results for history in histories))),
     end=pools.both(), refused=sum(history.refused for history in histories),
     had_room=sum(history.had_room for history in histories))
"""


def history(seed: int, threads: int, steps: int, leave: int) -> str:
    return HISTORY.format(seed=seed, threads=threads, steps=steps, limit=LIMIT, leave=leave)


@pytest.mark.parametrize("seed", range(6))
async def test_through_any_history_the_books_are_the_drivers_and_the_limit_holds(
    container: Container, gpu: SimulatedGpu, seed: int
) -> None:
    answer = await told(container, history(seed, 1, 600, 160 * MIB + 12345))

    assert answer["quiet"][0] == answer["quiet"][1]
    assert set(answer["results"]) <= {0, 2}
    assert answer["end"] == [0, 0]
    assert gpu.tenants()[0].peak_bytes <= LIMIT
    assert answer["refused"] > 0
    assert answer["had_room"] == 0


@pytest.mark.parametrize("seed", range(4))
async def test_with_many_threads_too(container: Container, gpu: SimulatedGpu, seed: int) -> None:
    answer = await told(container, history(seed, 8, 150, 300 * MIB + 1))

    assert answer["quiet"][0] == answer["quiet"][1]
    assert set(answer["results"]) <= {0, 2}
    assert answer["end"] == [0, 0]
    assert gpu.tenants()[0].peak_bytes <= LIMIT


RACER = """
import sys
from pool_client import *
History(LimitedPools({limit}), int(sys.argv[1])).run(100000 if sys.argv[1] == "0" else 250)
"""


async def test_processes_that_race_with_their_pools_never_pass_the_limit(
    container: Container, gpu: SimulatedGpu
) -> None:
    answer = await told(
        container,
        f"""
import subprocess, sys, time
_, filler = pools.plain({LIMIT} - {200 * MIB})
def start(seed):
    return subprocess.Popen([sys.executable, "-c", {RACER.format(limit=LIMIT)!r}, str(seed)])
racers = [start(seed) for seed in range(4)]
results = [racer.wait() for racer in racers[1:]]
racers[0].kill()
racers[0].wait()
end = time.monotonic() + 1
while pools.books() != {LIMIT - 200 * MIB} and time.monotonic() < end:
    time.sleep(0.005)
tell(results=results, both=pools.both())
""",
    )

    assert answer["results"] == [0, 0, 0]
    assert answer["both"] == [LIMIT - 200 * MIB] * 2
    assert gpu.tenants()[0].peak_bytes <= LIMIT


async def test_a_killed_program_leaves_nothing_of_its_pools(
    container: Container, work: Path
) -> None:
    answer = await told(
        container,
        f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", '''
from pool_client import *
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
end = time.monotonic() + 1
while pools.books() != 0 and time.monotonic() < end:
    time.sleep(0.005)
tell(held=held >= {LIMIT // 2}, left=pools.both())
""",
    )

    assert answer == {"held": True, "left": [0, 0]}

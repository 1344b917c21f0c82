"""Pools behind the shim, over the simulated driver: charged for what they hold, to the byte.

Whosever they are: destroyed in use, of the host, of another process, of a context that has ended,
of a parent, of a program that was killed.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.sim.gpu import SimulatedGpus
from tests.native.gpu_node import LIMIT, GpuNode, accounts, machine_of
from tests.native.shim.pool.pool_scripts import CHUNK, told
from tests.native.shim_container import Container
from tests.native.sim_box import PAGE

pytestmark = pytest.mark.namespaces


@pytest.fixture
def gpu(work: Path) -> Iterator[SimulatedGpus]:
    """Whose driver knows CUDA 13."""
    simulated = SimulatedGpus.create(work, machine_of(cuda_version=13040))
    yield simulated
    simulated.close()


@pytest.fixture
async def container(one_gpu: GpuNode) -> Container:
    return await one_gpu.container()


RULES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "what a pool keeps is charged until it goes back": (
        """
address = pools.had(MIB)
held = pools.both()
pools.free(address)
kept = pools.both()
pools.sync()
tell(held=held, kept=kept, gone=pools.both())
""",
        {"held": [CHUNK, CHUNK], "kept": [CHUNK, CHUNK], "gone": [0, 0]},
    ),
    "memory above the release threshold alone goes back": (
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
        {"kept": [CHUNK, CHUNK], "same": [CHUNK, CHUNK], "gone": [0, 0]},
    ),
    "a pool gives back what it keeps before anything else is refused": (
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
        {
            "full": [LIMIT, LIMIT],
            "first": 0,
            "again": [0, 0],
            "beyond": 2,
            "peak": LIMIT,
            "denied": 1,
        },
    ),
    "what a full pool has inside is not refused and what would make it grow is": (
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
more = pools.alloc(11 * MIB, other)[0]
elsewhere = pools.alloc(10 * MIB, other)
pools.free(elsewhere[1], other)
joined = pools.alloc(10 * MIB, stream)
pools.free(joined[1], stream)
pools.sync(stream)
later = pools.alloc(10 * MIB, other)[0]
tell(rest=rest, full=full, more=more, elsewhere=elsewhere[0], joined=joined[0], later=later,
     both=pools.both())
""",
        {
            "rest": 0,
            "full": 2,
            "more": 2,
            "elsewhere": 0,
            "joined": 0,
            "later": 0,
            "both": [LIMIT, LIMIT],
            "peak": LIMIT,
        },
    ),
    "what a destroyed stream freed is had again once its work is done": (
        f"""
stream, other = pools.stream(), pools.stream()
address = pools.had({LIMIT} // 4 * 3, stream)
pools.spin(stream, 1_000_000)
pools.free(address, stream)
assert pools.sync(stream) == 0
address = pools.had({LIMIT} // 4 * 3, stream)
pools.free(address, stream)
assert pools.driver.cuStreamDestroy_v2(stream) == 0
tell(code=pools.alloc({LIMIT} // 4 * 3, other)[0])
""",
        {"code": 0},
    ),
    "room for less than a pool grows by is refused": (
        f"""
pools.fill({CHUNK} - {PAGE})
tell(result=pools.alloc(1)[0], plain=pools.plain({CHUNK} - {PAGE})[0])
""",
        {"result": 2, "plain": 0, "peak": LIMIT},
    ),
    "growth that nobody foresaw is undone and refused": (
        """
pools.fill(32 * MIB)
first, second = pools.had(MIB), pools.had(31 * MIB)
pools.free(second)
stolen, size = ctypes.c_uint64(), ctypes.c_size_t(31 * MIB)
assert pools.real.cuMemAllocAsync(ctypes.byref(stolen), size, None) == 0
result = pools.alloc(31 * MIB)[0]
tell(result=result, both=pools.both())
""",
        {"result": 2, "both": [LIMIT, LIMIT], "denied": 1, "peak": LIMIT + CHUNK},
    ),
    "an answer of the driver other than success costs nothing": (
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
        {"results": [1, 2, 1, 1, 1, 1, 1, 1], "both": [0, 0]},
    ),
    "either way to free gives back what was allocated the other way": (
        """
results = [pools.free_now(pools.had(MIB)), pools.free(pools.plain(5)[1])]
kept = pools.both()
pools.sync()
tell(results=results, kept=kept, gone=pools.both())
""",
        {"results": [0, 0], "kept": [CHUNK, CHUNK], "gone": [0, 0]},
    ),
    "a pool destroyed in use is charged until its last allocation is free": (
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
        {
            "destroyed": [0, 0],
            "unknown": [1, 1, 1, 1, 1],
            "current": True,
            "used": [2 * CHUNK, 2 * CHUNK],
            "less": [2 * CHUNK, 2 * CHUNK],
            "pending": [2 * CHUNK, 2 * CHUNK],
            "gone": [0, 0],
            "standard": 1,
        },
    ),
    "a pool of the host or of another process is charged nothing": (
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
        {
            "on_host": 0,
            "refused": 1,
            "both": [CHUNK, CHUNK],
            "freed": [0] * 3,
            "ended": [0] * 3,
            "end": [0, 0],
        },
    ),
    "memory of a pool is charged beyond the end of its context": (
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
        {"same": True, "held": [CHUNK, CHUNK], "gone": [0, 0]},
    ),
    "a forked child begins with no pools and the parent's stay": (
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
        {"child": [3 * CHUNK, 3 * CHUNK], "later": [CHUNK, CHUNK], "parent": [CHUNK, CHUNK]},
    ),
    "a killed program leaves nothing of its pools": (
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
        {"held": True, "left": [0, 0]},
    ),
}
"""The rule, a program that keeps to it, and what it tells; `peak` and `denied` are what was held at
most, and how often it was refused."""


@pytest.mark.parametrize("rule", RULES)
async def test_a_program_with_pools_is_charged_what_they_hold_and_held_to_the_limit(
    container: Container, gpu: SimulatedGpus, manager: VirtualManager, rule: str
) -> None:
    script, expected = RULES[rule]

    answer = await told(container, script)

    (account,) = accounts(gpu)
    denied = manager.usage(AllocationID("one")).devices[0].denied
    seen = {"peak": account.bytes_peak, "denied": denied}
    assert answer | seen == {**seen, **expected}
    assert "peak" in expected or account.bytes_peak <= LIMIT


@pytest.fixture
def denied(manager: VirtualManager) -> Callable[[], int]:
    return lambda: manager.usage(AllocationID("one")).devices[0].denied


@pytest.mark.parametrize(
    "wait",
    [
        "cuStreamSynchronize(None)",
        "cuStreamSynchronize_ptsz(None)",
        "cuCtxSynchronize()",
        "cuCtxSynchronize_v2(None)",
        "cuEventSynchronize(event)",
        "cuMemPoolTrimTo(default, ctypes.c_size_t(0))",
    ],
)
async def test_whoever_waits_or_trims_sees_the_memory_back_at_once(
    container: Container, wait: str
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
from tests.native.programs.pool_client import *
print(LimitedPools({LIMIT}).books())
'''], capture_output=True, text=True)
tell(seen_by_another=other.stdout + other.stderr)
""".replace("event = ", "import subprocess, sys\nevent = ", 1),
    )

    assert answer["seen_by_another"].strip() == "0"


@pytest.mark.parametrize("opportunistic", [0, 1])
async def test_memory_goes_from_stream_to_stream_while_the_work_before_its_free_is_in_flight(
    container: Container, gpu: SimulatedGpus, opportunistic: int
) -> None:
    answer = await told(
        container,
        f"""
pools.put(default, 2, {opportunistic})
first, second, event = pools.stream(), pools.stream(), ctypes.c_void_p()
assert pools.driver.cuEventCreate(ctypes.byref(event), 2) == 0
codes = []
for _ in range(20):
    code, address = pools.alloc({LIMIT} // 4 * 3, first)
    codes.append(code)
    pools.spin(first, 1_000_000)
    pools.free(address, first)
    assert pools.driver.cuEventRecord(event, first) == 0
    assert pools.driver.cuStreamWaitEvent(second, event, 0) == 0
    first, second = second, first
tell(codes=codes)
""",
    )

    assert answer == {"codes": [0] * 20}
    assert accounts(gpu)[0].bytes_peak == LIMIT // 4 * 3


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

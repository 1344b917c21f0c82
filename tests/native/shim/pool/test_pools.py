"""Pools behind the shim, over the simulated driver: charged for what they hold, to the byte."""

from collections.abc import Callable, Iterator
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


@pytest.fixture
def denied(manager: VirtualManager) -> Callable[[], int]:
    return lambda: manager.usage(AllocationID("one")).devices[0].denied


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
        "cuCtxSynchronize_v2(None)",
        "cuEventSynchronize(event)",
        "cuMemPoolTrimTo(default, ctypes.c_size_t(0))",
    ],
)
async def test_whoever_waits_or_trims_sees_the_memory_back_at_once(
    container: Container, gpu: SimulatedGpus, manager: VirtualManager, wait: str
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
    container: Container, gpu: SimulatedGpus, denied: Callable[[], int]
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
    (account,) = accounts(gpu)
    assert account.bytes_peak == LIMIT
    assert denied() == 1


async def test_what_a_full_pool_has_inside_is_not_refused_and_what_would_make_it_grow_is(
    container: Container, gpu: SimulatedGpus
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
    )

    assert (answer["rest"], answer["full"], answer["more"]) == (0, 2, 2)
    assert (answer["elsewhere"], answer["joined"], answer["later"]) == (0, 0, 0)
    assert answer["both"] == [LIMIT, LIMIT]
    assert accounts(gpu)[0].bytes_peak == LIMIT


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


async def test_what_a_destroyed_stream_freed_is_had_again_once_its_work_is_done(
    container: Container,
) -> None:
    answer = await told(
        container,
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
    )

    assert answer == {"code": 0}


async def test_room_for_less_than_a_pool_grows_by_is_refused(
    container: Container, gpu: SimulatedGpus
) -> None:
    answer = await told(
        container,
        f"""
pools.fill({CHUNK} - {PAGE})
tell(result=pools.alloc(1)[0], plain=pools.plain({CHUNK} - {PAGE})[0])
""",
    )

    assert answer == {"result": 2, "plain": 0}
    assert accounts(gpu)[0].bytes_peak == LIMIT


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

"""What a launch waits for and what it pays, over a driver that ends work when the test says so."""

import asyncio
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpumanager.gpu.values import GpuUUID
from gpumanager.sim.libraries import lay_out
from gpumanager.units import Bytes
from gpumanager.virtual.manager import VirtualManager
from gpumanager.virtual.pages.books import Books
from gpumanager.virtual.pages.config import Config
from gpumanager.virtual.values import Limit
from tests.native.shim_container import ALLOCATION, GPU, INCLUDE, LIMIT, Container, reached
from vcuda_shim import SIMULATED_DRIVER
from vcuda_shim._shim import lib

pytestmark = pytest.mark.namespaces

HERE = Path(__file__).resolve().parent
SECOND = GpuUUID("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f")
MICROSECOND, MILLISECOND = 1_000, 1_000_000
ALLOWANCE = int(lib.LIMITER_ALLOWANCE_NS)
FIRST_ALLOWANCE = ALLOWANCE // int(lib.LIMITER_ALLOWANCES_PER_BURST)

CLIENT = """
import os, threading
driver, pace = cuda(), ctypes.CDLL("libvcuda-real.so.1")
driver.cuInit(0)
length = lambda milliseconds: pace.pace_length(ctypes.c_float(milliseconds))
def go(stream=0, function=1, times=1):
    shape = (1, 1, 1, 32, 1, 1, 0)
    handles = ctypes.c_void_p(function * 4096), ctypes.c_void_p(stream)
    results = {driver.cuLaunchKernel(handles[0], *shape, handles[1], None, None)
               for _ in range(times)}
    return results.pop() if len(results) == 1 else results
"""
"""`go` launches: of 0.1 ms unless `length` said otherwise."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Of one device, read at the end."""

    charged: int
    retired: int
    throttled: int
    throttled_ns: int
    launches: int
    awaited_ns: int


class Paced:
    """A container over the driver of paced_cuda.c."""

    def __init__(self, container: Container, manager: VirtualManager) -> None:
        self._container, self._manager = container, manager

    async def allow(self, cores: int, gpus: tuple[GpuUUID, ...] = (GPU,)) -> None:
        limits = [Limit(gpu, Bytes(LIMIT), cores, cores) for gpu in gpus]
        await self._manager.open(ALLOCATION, limits)

    def tell_of(self, neighbours: int) -> None:
        """So many processes of others may have work on the GPU."""
        assert self._container.allocation is not None
        with Config(self._container.allocation, writable=True) as config:
            config.page.limits[0].neighbours = neighbours

    async def run(self, script: str) -> dict[str, Any]:
        return await self._container.run(CLIENT + script)

    def meter(self, device: int = 0) -> Meter:
        assert self._container.allocation is not None
        with Books.existing(self._container.allocation) as books:
            words = books.words.meters[device]
            return Meter(
                charged=words.charged_ns,
                retired=words.retired_ns,
                throttled=words.throttled,
                throttled_ns=words.throttled_ns,
                launches=words.launches,
                awaited_ns=words.awaited_ns,
            )


@pytest.fixture(scope="session")
def paced_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paced")
    cuda = folder / "libcuda.so.1.0"
    flags = ["-std=gnu11", "-O1", "-fPIC", "-shared", f"-I{INCLUDE}", "-Wall", "-Werror"]
    binding = ["-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1"]
    command = ["gcc", *flags, *binding, "-o", str(cuda), str(HERE / "paced_cuda.c")]
    subprocess.run(command, check=True, timeout=300)
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    return lay_out(folder / "lib", cuda, nvml)


@pytest.fixture
async def paced(work: Path, paced_driver: Path, manager: VirtualManager) -> Paced:
    directory = await manager.open(ALLOCATION, [Limit(GPU, Bytes(LIMIT), 99, 99)])
    return Paced(Container(paced_driver, directory, work), manager)


async def test_a_launch_within_the_allowance_moves_no_meter(paced: Paced) -> None:
    told = await paced.run("tell(results=[go(), go(), *(go() for _ in range(5))])")

    assert told["results"] == [0] * 7
    meter = paced.meter()
    assert meter.charged >= 7 * 100 * MICROSECOND
    assert meter.launches < 7


async def test_work_in_flight_is_waited_for_and_not_for_ever(paced: Paced) -> None:
    told = await paced.run(
        """
go()
pace.pace_hold(0, 0)
tell(result=go(times=300))  # 30 ms, which the promise allows at once, and 20 may be in flight
"""
    )

    assert told == {"result": 0}
    assert paced.meter().throttled >= 1
    assert paced.meter().throttled_ns >= 200 * MILLISECOND


async def test_work_that_is_done_is_waited_for_by_nobody(paced: Paced) -> None:
    told = await paced.run("go(), driver.cuStreamSynchronize(0)\ntell(result=go(times=300))")

    assert told == {"result": 0}
    assert paced.meter().throttled == 0


async def test_kernels_that_wait_for_each_other_come_together(paced: Paced) -> None:
    told = await paced.run(
        """
length(30)
go(1, function=1), go(2, function=2)  # their cost is known: more than may be in flight
pace.pace_hold(1, 2)
tell(results=[go(1, function=1), go(2, function=2)], done=pace.pace_held(ctypes.c_void_p(1)) == 0)
"""
    )

    assert told == {"results": [0, 0], "done": True}


async def test_kernels_of_one_unknown_kind_that_wait_for_each_other_come_together(
    paced: Paced,
) -> None:
    told = await paced.run(
        """
pace.pace_hold(1, 2)
threads = [threading.Thread(target=go, args=(stream,)) for stream in (1, 2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
tell(done=pace.pace_held(ctypes.c_void_p(1)) == 0)
"""
    )

    assert told == {"done": True}


async def test_a_measurement_that_never_ends_is_waited_for_once(paced: Paced) -> None:
    await paced.run(
        """
pace.pace_hold(1, 0)
go(1)           # measured, and never done
pace.pace_hold(2, 0)
go(2)           # waits for that, in vain
go(2, times=5)  # wait for nothing
"""
    )

    assert paced.meter().throttled == 1


async def test_a_launch_that_fails_costs_nothing(paced: Paced) -> None:
    told = await paced.run(
        """
go()
pace.pace_refuse(719)
tell(result=go(times=2000))  # 200 ms, had they run
"""
    )

    assert told == {"result": 719}
    assert paced.meter().charged <= 2 * 100 * MICROSECOND + ALLOWANCE


async def test_threads_that_live_short_take_little_of_the_promise_along(paced: Paced) -> None:
    await paced.run(
        """
length(0.001)
go()
for _ in range(200):
    thread = threading.Thread(target=go)
    thread.start()
    thread.join()
"""
    )

    assert paced.meter().charged <= 201 * (FIRST_ALLOWANCE + MICROSECOND)


async def test_a_forked_child_pays_for_itself(
    paced: Paced, manager: VirtualManager, work: Path
) -> None:
    running = asyncio.create_task(
        paced.run(
            f"""
go(times=2)
reach({str(work / "paid")!r})
wait_for({str(work / "seen")!r})
if os.fork() == 0:
    go(times=2)
    reach({str(work / "forked")!r})
    wait_for({str(work / "end")!r})
    os._exit(0)
os.wait()
"""
        )
    )
    await reached(work / "paid", running)
    before = paced.meter().charged
    (work / "seen").touch()
    await reached(work / "forked", running)
    after, processes = paced.meter().charged, manager.usage(ALLOCATION).processes
    (work / "end").touch()
    await running

    assert after > before
    assert len(processes) == 2


async def test_each_gpu_is_paid_for_what_ran_on_it(paced: Paced) -> None:
    await paced.allow(99, (GPU, SECOND))

    await paced.run(
        """
for turn in range(60):
    pace.pace_device(turn % 3 == 0)
    go()
for device in (0, 1):
    pace.pace_device(device)
    driver.cuStreamSynchronize(0)
"""
    )

    first, second = paced.meter(0), paced.meter(1)
    assert 40 * 100 * MICROSECOND <= first.charged <= 40 * 100 * MICROSECOND + ALLOWANCE
    assert 20 * 100 * MICROSECOND <= second.charged <= 20 * 100 * MICROSECOND + ALLOWANCE


@pytest.mark.parametrize("neighbours", [0, 1])
async def test_beside_others_the_meter_says_for_how_long_a_program_waited_for_its_work(
    paced: Paced, neighbours: int
) -> None:
    paced.tell_of(neighbours)
    told = await paced.run(
        """
import time
length(20)
go(), go()
before = time.monotonic_ns()
waited = driver.cuStreamSynchronize(0)
tell(result=waited, longest=time.monotonic_ns() - before)
"""
    )

    assert told["result"] == 0
    assert (paced.meter().awaited_ns > 0) == (neighbours > 0)
    assert paced.meter().awaited_ns <= told["longest"]


async def test_after_a_wait_what_was_launched_is_known_to_have_ended(paced: Paced) -> None:
    await paced.run(
        """
length(4)
go(), go()
pace.pace_hold(0, 0)
go(times=3)
pace.pace_let_go(0)
driver.cuStreamSynchronize(0)
"""
    )

    meter = paced.meter()
    assert meter.charged == meter.retired == 5 * 4 * MILLISECOND


async def test_a_stream_that_refuses_events_ends_no_other_streams_measurements(
    paced: Paced,
) -> None:
    await paced.run(
        """
pace.pace_refuse_events(1)
length(0.05)
for function in range(2, 12): go(1, function=function)
length(4)
go(2), driver.cuStreamSynchronize(2)
go(2), driver.cuStreamSynchronize(2)
"""
    )

    assert paced.meter().charged >= 2 * 4 * MILLISECOND


async def test_work_in_a_stream_that_refuses_events_is_charged_by_elapsed_time(
    paced: Paced,
) -> None:
    told = await paced.run(
        """
import time
pace.pace_refuse_events(1)
for function in range(2, 6): go(1, function=function)
driver.cuStreamSynchronize(1)
begun = time.monotonic_ns()
pace.pace_hold(1, 0)
go(1, function=7)
launched = time.monotonic_ns()
time.sleep(0.05)
looked = time.monotonic_ns()
go(1, function=7)
time.sleep(0.05)
pace.pace_let_go(1)
driver.cuStreamSynchronize(1)
waited = time.monotonic_ns()
time.sleep(0.2)  # idle, which costs nothing
go(1, function=7)
tell(least=looked - launched + 50_000_000, most=waited - begun)
"""
    )

    launches = 6 * int(lib.COST_UNKNOWN_NS) + ALLOWANCE
    assert told["least"] <= paced.meter().charged <= told["most"] + launches


NAMED = """
def named(function, name):
    found = ctypes.c_void_p()
    assert driver.cuModuleGetFunction(
        ctypes.byref(found), ctypes.c_void_p(function * 4096), name.encode()) == 0
"""
COLLECTIVES = (
    "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllReduce_RING_LL_Sum_half",
    "_ZN4vllm26cross_device_reduce_1stageI6__halfLi2EEEvPNS_8RankDataENS_11RankSignalsE",
)


@pytest.mark.parametrize("name", [*COLLECTIVES, "gemm_ncclDevKernel"])
async def test_a_kernel_that_ranks_wait_for_is_charged_and_not_held_back(
    paced: Paced, name: str
) -> None:
    await paced.allow(10)
    await paced.run(
        NAMED
        + f"""
named(2, {name!r})
go(function=2), driver.cuStreamSynchronize(0)
length(30)
go(function=1), driver.cuStreamSynchronize(0)  # ahead by 150 ms
length(0.1)
go(function=2), driver.cuStreamSynchronize(0)
go(function=2), driver.cuStreamSynchronize(0)
"""
    )

    held = name not in COLLECTIVES
    assert (paced.meter().throttled > 0) == held
    assert paced.meter().charged >= 15 * MILLISECOND  # half: nothing is known of neighbours


async def test_a_function_is_a_collective_as_its_kernel_is(paced: Paced) -> None:
    """As NCCL and the runtime find theirs: by library, kernel, function."""
    await paced.allow(10)
    await paced.run(
        """
kernel, function = ctypes.c_void_p(), ctypes.c_void_p()
name = b"ncclDevKernel_Generic"
driver.cuLibraryGetKernel(ctypes.byref(kernel), ctypes.c_void_p(2 * 4096), name)
driver.cuKernelGetFunction(ctypes.byref(function), kernel)
assert function.value == 2 * 4096
go(function=2), driver.cuStreamSynchronize(0)
length(30)
go(function=1), driver.cuStreamSynchronize(0)  # ahead by 150 ms
length(0.1)
go(function=2), go(function=2)
"""
    )

    assert paced.meter().throttled == 0
    assert paced.meter().charged >= 15 * MILLISECOND


@pytest.mark.parametrize("name", ["ncclDevKernel_Generic", "gemm"])
async def test_a_graph_with_a_collective_is_charged_and_not_held_back(
    paced: Paced, name: str
) -> None:
    await paced.allow(10)
    await paced.run(
        NAMED
        + f"""
named(2, {name!r})
graph = ctypes.c_void_p()
assert driver.cuGraphInstantiateWithFlags(
    ctypes.byref(graph), ctypes.c_void_p(2 * 4096), ctypes.c_ulonglong(0)) == 0
launched = lambda: driver.cuGraphLaunch(graph, ctypes.c_void_p(0))
assert launched() == 0
driver.cuStreamSynchronize(0)
length(30)
go(function=1), driver.cuStreamSynchronize(0)  # ahead by 150 ms
assert launched() == 0  # takes as long
length(0.1)
driver.cuStreamSynchronize(0)
"""
    )

    assert (paced.meter().throttled > 0) == (name == "gemm")
    assert paced.meter().charged >= 30 * MILLISECOND  # half: nothing is known of neighbours


async def test_a_collective_waits_for_the_other_gpus_of_its_container_and_not_for_ever(
    paced: Paced,
) -> None:
    """The rank of the second GPU owes 300 s, and launches nothing more: it was killed, say."""
    await paced.allow(50, (GPU, SECOND))
    told = await paced.run(
        NAMED
        + """
named(2, "ncclDevKernel_Generic")
def collective(device):
    pace.pace_device(device)
    begun = time.monotonic_ns()
    go(function=2), driver.cuStreamSynchronize(0)
    return time.monotonic_ns() - begun
collective(0)
length(300_000)
collective(1)
length(0.1)
tell(waited=sum(collective(0) for _ in range(100)))
"""
    )

    assert paced.meter(0).throttled == 1
    assert paced.meter(0).throttled_ns <= told["waited"] <= 100_000 * MILLISECOND


async def test_what_collectives_owe_the_next_ordinary_launch_pays(paced: Paced) -> None:
    await paced.allow(10)
    await paced.run(
        NAMED
        + """
named(2, "ncclDevKernel_Generic")
go(function=1), driver.cuStreamSynchronize(0)
length(30)
go(function=2), driver.cuStreamSynchronize(0)
length(0.1)
go(function=1)
"""
    )

    assert paced.meter().throttled == 1
    assert paced.meter().throttled_ns >= 100 * MILLISECOND


async def test_collectives_that_owe_much_are_held_back(paced: Paced) -> None:
    await paced.allow(10)
    await paced.run(
        NAMED
        + """
named(2, "ncclDevKernel_Generic")
length(300)
for _ in range(2):
    go(function=2), driver.cuStreamSynchronize(0)
"""
    )

    assert paced.meter().throttled == 1


OVERLAPPING = """
class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_int * 16)]
class LaunchConfig(ctypes.Structure):
    _fields_ = [("shape", ctypes.c_uint * 7), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint)]
def go_each(function, overlaps, times):
    attribute = Attribute(6, 0, (ctypes.c_int * 16)(overlaps))
    shape = (ctypes.c_uint * 7)(1, 1, 1, 32, 1, 1, 0)
    config = LaunchConfig(shape, None, ctypes.pointer(attribute), 1)
    before = pace.pace_recorded()
    for _ in range(times):
        driver.cuLaunchKernelEx(
            ctypes.byref(config), ctypes.c_void_p(function * 4096), None, None)
    return pace.pace_recorded() - before
"""


async def test_events_rarely_come_between_launches_that_overlap(paced: Paced) -> None:
    told = await paced.run(
        OVERLAPPING
        + """
for overlaps in (0, 1):  # the first of a kind are all measured
    go_each(1 + overlaps, overlaps, 200)
    driver.cuStreamSynchronize(0)
tell(plain=go_each(1, 0, 5000), overlapping=go_each(2, 1, 5000))
"""
    )

    assert 0 < told["overlapping"] < told["plain"] / 2

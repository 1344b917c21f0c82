"""What the shim does about work in flight, over a driver whose work ends when the test says so.

The container has 50 % of the GPU, alone: its word is bounded, so that it tells what it launches.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from driver_libraries import lay_out

from gpumanager.gpu.values import GpuUUID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.pages.books import Books
from gpumanager.limits.values import Limit
from gpumanager.units import Bytes
from tests.native.shim_container import ALLOCATION, GPU, INCLUDE, LIMIT, Container, Program
from vcuda_shim import SIMULATED_DRIVER
from vcuda_shim._shim import ffi

pytestmark = pytest.mark.namespaces

HERE = Path(__file__).resolve().parent
SECOND = GpuUUID("GPU-10111213-1415-1617-1819-1a1b1c1d1e1f")
CORES = 50

CLIENT = """
import os, threading, time
driver, pace = cuda(), ctypes.CDLL("libvcuda-real.so.1")
driver.cuInit(0)
def go(stream=0, function=1, times=1):
    shape = (1, 1, 1, 32, 1, 1, 0)
    handles = ctypes.c_void_p(function * 4096), ctypes.c_void_p(stream)
    results = {driver.cuLaunchKernel(handles[0], *shape, handles[1], None, None)
               for _ in range(times)}
    return results.pop() if len(results) == 1 else results
"""


class Paced:
    """A container over the driver of paced_cuda.c."""

    def __init__(self, container: Container, manager: VirtualManager) -> None:
        self._container, self._manager = container, manager

    async def allow(self, *gpus: GpuUUID) -> None:
        limits = [Limit(gpu, Bytes(LIMIT), CORES, CORES) for gpu in gpus]
        await self._manager.open(ALLOCATION, limits)

    async def run(self, script: str) -> dict[str, Any]:
        return await self._container.run(CLIENT + script)

    def begin(self, script: str) -> Program:
        return self._container.begin(CLIENT + script)

    def launches(self) -> Sequence[int]:
        """In turns, on each device."""
        return [device.launches for device in self._manager.usage(ALLOCATION).devices]

    def collectives(self) -> int:
        """Launched by the first process."""
        assert self._container.allocation is not None
        with Books.existing(self._container.allocation) as books:
            hints: Any = ffi.cast("struct vcuda_hints *", books.hints)
            return int(hints.of[0][0].collectives_launched)


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
    directory = await manager.open(ALLOCATION, [Limit(GPU, Bytes(LIMIT), CORES, CORES)])
    turns = manager.turns(ALLOCATION)
    return Paced(Container(paced_driver, directory, work, turns=turns), manager)


async def test_launches_by_credit_are_counted_and_few_of_all_carry_a_mark(paced: Paced) -> None:
    told = await paced.run(
        "tell(result=go(times=20_000), marks=pace.pace_recorded(), wait=driver.cuCtxSynchronize())"
    )

    assert told["result"] == 0
    assert 0 < told["marks"] < 20_000 / 4
    assert paced.launches() == [20_000]


async def test_threads_that_launch_into_one_stream_count_each_launch(paced: Paced) -> None:
    """But for one that was under way when credit was found to be another thread's."""
    await paced.run(
        """
threads = [threading.Thread(target=go, args=(1, 1, 5000)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
driver.cuStreamSynchronize(1)
"""
    )

    assert paced.launches() == pytest.approx([20_000], abs=20)


async def test_work_in_flight_is_waited_for_and_not_for_ever(paced: Paced) -> None:
    told = await paced.run(
        """
go()
pace.pace_hold(0, 0)
begun = time.monotonic()
tell(result=go(times=40), took=time.monotonic() - begun)
"""
    )

    assert told["result"] == 0
    assert told["took"] > 0.003  # for room


async def test_kernels_that_wait_for_each_other_come_together(paced: Paced) -> None:
    told = await paced.run(
        """
go(1, function=1), go(2, function=2)
pace.pace_hold(1, 2)
tell(results=[go(1, function=1), go(2, function=2)], done=pace.pace_held(ctypes.c_void_p(1)) == 0)
"""
    )

    assert told == {"results": [0, 0], "done": True}


async def test_kernels_of_two_threads_that_wait_for_each_other_come_together(paced: Paced) -> None:
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


async def test_a_stream_that_refuses_events_goes_on(paced: Paced) -> None:
    told = await paced.run("pace.pace_refuse_events(1)\ntell(result=go(1, times=500))")

    assert told == {"result": 0}
    assert paced.launches() == [500]


async def test_a_launch_that_fails_says_so(paced: Paced) -> None:
    told = await paced.run("go()\npace.pace_refuse(719)\ntell(result=go(times=2000))")

    assert told == {"result": 719}


async def test_a_forked_child_launches_as_a_process_of_its_own(
    paced: Paced, manager: VirtualManager
) -> None:
    """Its parent's credit is none of its own."""
    program = paced.begin(
        """
go(times=1000)
if os.fork() == 0:
    go(times=1000)
    pause()
    os._exit(0)
os.wait()
"""
    )
    await program.pauses()
    processes = manager.usage(ALLOCATION).processes
    await program.ends()

    assert len(processes) == 2


async def test_each_gpu_counts_what_ran_on_it(paced: Paced) -> None:
    await paced.allow(GPU, SECOND)

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

    assert paced.launches() == [40, 20]


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
async def test_a_kernel_that_ranks_wait_for_is_told_each_time(paced: Paced, name: str) -> None:
    await paced.run(f"{NAMED}\nnamed(2, {name!r})\ngo(times=500), go(function=2, times=500)")

    assert paced.collectives() == (500 if name in COLLECTIVES else 0)


async def test_a_function_is_a_collective_as_its_kernel_is(paced: Paced) -> None:
    """As NCCL and the runtime find theirs: by library, kernel, function."""
    await paced.run(
        """
kernel, function = ctypes.c_void_p(), ctypes.c_void_p()
name = b"ncclDevKernel_Generic"
driver.cuLibraryGetKernel(ctypes.byref(kernel), ctypes.c_void_p(2 * 4096), name)
driver.cuKernelGetFunction(ctypes.byref(function), kernel)
assert function.value == 2 * 4096
go(function=2, times=7)
"""
    )

    assert paced.collectives() == 7


@pytest.mark.parametrize("name", ["ncclDevKernel_Generic", "gemm"])
async def test_a_graph_with_a_collective_is_one(paced: Paced, name: str) -> None:
    await paced.run(
        f"""{NAMED}
named(2, {name!r})
graph = ctypes.c_void_p()
assert driver.cuGraphInstantiateWithFlags(
    ctypes.byref(graph), ctypes.c_void_p(2 * 4096), ctypes.c_ulonglong(0)) == 0
for _ in range(3):
    assert driver.cuGraphLaunch(graph, ctypes.c_void_p(0)) == 0
driver.cuStreamSynchronize(0)
"""
    )

    assert paced.collectives() == (0 if name == "gemm" else 3)

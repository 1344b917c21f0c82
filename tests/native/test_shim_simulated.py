"""The shim over the simulated driver: whose own account shows what the limits are worth."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shim_container import GPU, Container, lay_out, reached

from gpumanager.sim.container.values import BindMount
from gpumanager.units import GIB, MIB, Bytes
from gpumanager.virtual.manager import VirtualSockets
from gpumanager.virtual.values import AllocationID, Limit
from vcuda_shim import SIMULATED_DRIVER
from vcuda_shim._sim import ffi, lib

real_clock = pytest.mark.flaky(reruns=2)
"""A busy host may delay a launch or a wake-up: measured again then. A wrong share stays wrong."""


pytestmark = pytest.mark.namespaces

PHYSICAL = 16 * GIB
LIMIT = 2 * GIB
MICROSECOND, MILLISECOND = 1_000, 1_000_000


class SimulatedGpu:
    """One simulated GPU, and its own account of who used it."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        machine: Any = ffi.new("struct sim_machine *")
        machine.gpu_count, machine.cuda_version = 1, 12050
        machine.driver_version = b"555.58.02"
        gpu = machine.gpus[0]
        gpu.name, gpu.uuid, gpu.memory_bytes = b"Simulated", bytes(range(16)), PHYSICAL
        gpu.sm_count, gpu.threads_per_sm, gpu.capability_major = 40, 1024, 7
        state = directory / "nvidiactl"
        assert lib.sim_create(str(state).encode(), machine) == 0
        for name in ("nvidia0", "nvidia-uvm"):
            (directory / name).touch()
        self.devices = tuple(
            BindMount(str(directory / name), f"/dev/{name}")
            for name in ("nvidiactl", "nvidia0", "nvidia-uvm")
        )
        opened: Any = ffi.new("struct sim_state **")
        assert lib.sim_open(str(state).encode(), opened) == 0
        self._state = opened[0]

    def close(self) -> None:
        lib.sim_close(self._state)

    def tenants(self) -> list[Any]:
        """Accounts in the order of their first launch."""
        out: Any = ffi.new("struct sim_tenant[]", lib.SIM_TENANTS)
        count = lib.account_tenants(self._state, out, lib.SIM_TENANTS)
        return sorted((out[n].gpus[0] for n in range(count)), key=lambda use: use.first_launch_ns)


def share(account: Any) -> float:
    return float(100 * account.busy_ns / (account.last_end_ns - account.first_launch_ns))


@pytest.fixture
def gpu(work: Path) -> Iterator[SimulatedGpu]:
    simulated = SimulatedGpu(work / "dev")
    yield simulated
    simulated.close()


@pytest.fixture
def libraries(work: Path) -> Path:
    (cuda,) = SIMULATED_DRIVER.glob("libcuda.so.*")
    (nvml,) = SIMULATED_DRIVER.glob("libnvidia-ml.so.*")
    return lay_out(work / "lib", cuda, nvml)


class Node:
    """Containers with a share of the one GPU."""

    def __init__(
        self, work: Path, gpu: SimulatedGpu, manager: VirtualSockets, libraries: Path
    ) -> None:
        self._work, self._gpu, self._manager, self._libraries = work, gpu, manager, libraries

    async def container(self, name: str, cores: int) -> Container:
        limit = Limit(GPU, Bytes(LIMIT), cores, cores)
        directory = await self._manager.open(AllocationID(name), [limit])
        return Container(self._libraries, directory, self._work, self._gpu.devices)


@pytest.fixture
def node(work: Path, gpu: SimulatedGpu, manager: VirtualSockets, libraries: Path) -> Node:
    return Node(work, gpu, manager, libraries)


async def test_the_driver_never_holds_a_byte_more_than_the_limit(
    node: Node, gpu: SimulatedGpu
) -> None:
    told = await (await node.container("one", 100)).run(
        f"""
driver = cuda()
begin(driver)
held = []
while (answer := allocate(driver, {256 * MIB} - 1))[0] == SUCCESS:
    held.append(answer[1])
refused, rest = answer[0], memory(driver)[0]
last, beyond = allocate(driver, rest)[0], allocate(driver, 1)[0]
freed = free(driver, held[0])
tell(blocks=len(held), refused=refused, rest=rest, last=last, beyond=beyond, freed=freed,
     again=allocate(driver, {256 * MIB} - 1)[0])
"""
    )

    assert (told["blocks"], told["refused"], told["rest"]) == (8, 2, 8)
    assert (told["last"], told["beyond"]) == (0, 2)
    assert (told["freed"], told["again"]) == (0, 0)
    (account,) = gpu.tenants()
    assert (account.peak_bytes, account.refused) == (LIMIT, 0)


@real_clock
@pytest.mark.parametrize(
    ("cores", "length", "synchronise"),
    [
        (30, 2 * MILLISECOND, False),
        (30, 2 * MILLISECOND, True),
        (50, 50 * MICROSECOND, False),
        (50, 50 * MICROSECOND, True),
        (40, 150 * MILLISECOND, False),
        (40, 150 * MILLISECOND, True),
    ],
)
async def test_one_container_gets_the_share_it_was_promised(
    node: Node, gpu: SimulatedGpu, cores: int, length: int, *, synchronise: bool
) -> None:
    container = await node.container("one", cores)

    await container.run(f"spin_for(3, [({length}, 1)], synchronise={synchronise})")

    (account,) = gpu.tenants()
    assert share(account) == pytest.approx(cores, abs=5)


@real_clock
async def test_kernels_of_different_kinds_pay_for_what_each_takes(
    node: Node, gpu: SimulatedGpu
) -> None:
    container = await node.container("one", 50)
    kernels = [(3 * MILLISECOND, 1), (200 * MICROSECOND, 2), (10 * MILLISECOND, 3)]

    await container.run(f"spin_for(3, {kernels}, synchronise=False)")

    (account,) = gpu.tenants()
    assert share(account) == pytest.approx(50, abs=5)


@pytest.mark.flaky(reruns=4)  # while measurements lag behind work in flight it can run free
async def test_kernels_of_one_kind_whose_length_varies_are_not_let_run_at_the_price_of_the_shortest(
    node: Node, gpu: SimulatedGpu
) -> None:
    container = await node.container("one", 30)
    kernels = [(MILLISECOND, 1), (9 * MILLISECOND, 1)]

    await container.run(f"spin_for(3, {kernels}, synchronise=False)")

    (account,) = gpu.tenants()
    assert 28 < share(account) < 90  # 100 without; to be exact needs what only the manager sees


@real_clock
async def test_two_containers_each_get_their_share_of_one_gpu(
    node: Node, gpu: SimulatedGpu
) -> None:
    small, large = await node.container("small", 30), await node.container("large", 60)
    script = f"spin_for(5, [({2 * MILLISECOND}, 1)], synchronise=False)"

    await asyncio.gather(small.run(script), large.run(script))

    shares = sorted(share(account) for account in gpu.tenants())
    assert shares == pytest.approx([30, 60], abs=5)


@real_clock
async def test_without_a_compute_limit_nothing_is_held_back(node: Node, gpu: SimulatedGpu) -> None:
    container = await node.container("one", 100)

    await container.run(f"spin_for(1, [({2 * MILLISECOND}, 1)], synchronise=False)")

    (account,) = gpu.tenants()
    assert share(account) > 95


@real_clock
async def test_a_share_changed_at_run_time_is_held_within_a_second(
    node: Node, gpu: SimulatedGpu, work: Path
) -> None:
    container = await node.container("one", 20)
    running = asyncio.create_task(
        container.run(
            f"""
driver = cuda()
function = begin(driver)
reach({str(work / "started")!r})
while not Path({str(work / "stop")!r}).exists():
    spin(driver, function, {MILLISECOND})
"""
        )
    )
    await reached(work / "started", running)
    await node.container("one", 80)
    await asyncio.sleep(1)  # the bar itself, not a synchronisation
    before, begun = gpu.tenants()[0].busy_ns, time.monotonic_ns()
    await asyncio.sleep(2)
    after, ended = gpu.tenants()[0].busy_ns, time.monotonic_ns()
    (work / "stop").touch()
    await running

    assert 100 * (after - before) / (ended - begun) == pytest.approx(80, abs=5)


GREEDY = f"""
from shim_client import *
driver = cuda()
begin(driver)
while allocate(driver, {64 * MIB})[0] == SUCCESS:
    pass
print("full", flush=True)
while True:
    allocate(driver, 1)
"""


async def test_a_killed_program_leaves_the_books_right_within_a_second(
    node: Node, gpu: SimulatedGpu, manager: VirtualSockets
) -> None:
    container = await node.container("one", 100)

    await container.run(
        f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {GREEDY!r}], stdout=subprocess.PIPE, text=True)
assert child.stdout.readline().strip() == "full"
driver = cuda()
begin(driver)
assert allocate(driver, 1)[0] == OUT_OF_MEMORY
child.kill()
child.wait()
end = time.monotonic() + 1
while memory(driver)[0] != {LIMIT} and time.monotonic() < end:
    time.sleep(0.005)
assert memory(driver)[0] == {LIMIT}
assert allocate(driver, {LIMIT})[0] == SUCCESS
"""
    )

    assert manager.usage(AllocationID("one")).devices[0].peak == LIMIT
    assert gpu.tenants()[0].peak_bytes <= LIMIT


async def test_rows_that_the_driver_pads_never_take_the_memory_over_the_limit(
    node: Node, gpu: SimulatedGpu
) -> None:
    container = await node.container("one", 100)

    told = await container.run(
        f"""
driver = cuda()
begin(driver)
def rows(height):
    address, pitch = ctypes.c_uint64(), ctypes.c_size_t()
    found = ctypes.byref(address), ctypes.byref(pitch)
    return driver.cuMemAllocPitch_v2(*found, ctypes.c_size_t(500), ctypes.c_size_t(height), 4)
tell(too_many=rows({LIMIT} // 512 + 1), fits=rows({LIMIT} // 512))
"""
    )

    assert told == {"too_many": 2, "fits": 0}
    assert gpu.tenants()[0].peak_bytes == LIMIT


async def test_memory_that_went_with_its_context_is_not_charged_twice_where_it_is_taken_again(
    node: Node,
) -> None:
    container = await node.container("one", 100)

    told = await container.run(
        f"""
driver, context = cuda(), ctypes.c_void_p()
driver.cuInit(0)
results = []
for _ in range(8):
    assert driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == SUCCESS
    results.append(allocate(driver, {LIMIT // 4}))
    assert driver.cuCtxDestroy_v2(context) == SUCCESS
tell(results=sorted({{result for result, _ in results}}), places=len({{at for _, at in results}}))
"""
    )

    assert told == {"results": [0], "places": 1}

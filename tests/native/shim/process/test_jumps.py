"""A thread that leaves a call of the driver by a jump is limited as before, and holds nothing."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.turns import Turns
from gpumanager.units import GIB, MIB
from tests.native.gpu_node import GpuNode
from tests.native.shim_container import ALLOCATION, Container, allocation
from tests.native.shim_container import LIMIT as CAP

pytestmark = pytest.mark.namespaces

LIMIT = GIB
PIECE = 64 * MIB
PROGRAM = Path(__file__).with_name("jumps.c")


@pytest.fixture(scope="session")
def jumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("jumps") / "jumps"
    command = ["gcc", "-std=gnu11", "-O1", "-w", "-pthread", str(PROGRAM), "-ldl"]
    subprocess.run([*command, "-o", str(program)], check=True, timeout=300)
    return program


@pytest.fixture(scope="session")
def leave(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("leave") / "leave.so"
    command = ["gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", str(PROGRAM.with_name("leave.c"))]
    subprocess.run([*command, "-o", str(library)], check=True, timeout=300)
    return library


async def jump_out_of(kind: str, node: GpuNode, jumps: Path, cores: int) -> dict[str, Any]:
    container = await node.container(LIMIT, cores)
    return await container.run(
        f"""
import subprocess
ran = subprocess.run([{str(jumps)!r}, {kind!r}], capture_output=True, text=True)
print(ran.stdout or json.dumps({{"failed": ran.returncode}}), end="", flush=True)
"""
    )


async def test_a_thread_that_jumps_out_of_a_held_launch_is_limited_as_before(
    one_gpu: GpuNode, jumps: Path
) -> None:
    told = await jump_out_of("launch", one_gpu, jumps, cores=1)

    launches = told.pop("calls between jumps")
    assert told == {
        "total": LIMIT,
        "had": LIMIT,
        "uncancellable": 0,
        "blocked signals": 0,
        "another thread": 0,
    }
    assert launches < 100  # held again; without a limit the driver takes a thousand at once
    assert one_gpu.peaks() == [LIMIT]


@pytest.mark.parametrize("kind", ["stream", "event", "context"])
async def test_a_thread_that_jumps_out_of_a_wait_is_limited_as_before(
    one_gpu: GpuNode, jumps: Path, kind: str
) -> None:
    told = await jump_out_of(kind, one_gpu, jumps, cores=50)

    assert told == {
        "total": LIMIT,
        "had": LIMIT - PIECE,  # the pool keeps its page
        "calls between jumps": 0,
        "uncancellable": 0,
        "blocked signals": 0,
        "another thread": 0,
    }


async def test_a_thread_that_jumps_out_of_cuinit_keeps_no_thread_from_starting(
    work: Path, one_gpu: GpuNode, manager: VirtualManager, jumps: Path
) -> None:
    container = await one_gpu.container(LIMIT)
    await manager.stop()  # cuInit waits for it
    told: dict[str, int] = {}
    jumped = asyncio.Event()

    def read(line: str) -> None:
        told.update(json.loads(line))
        jumped.set()

    process = await container.start((str(jumps), "init"), read)
    await asyncio.wait_for(jumped.wait(), 60)
    successor = VirtualManager(work, turns=Turns(work / "turns"))
    await allocation(successor, memory=LIMIT)
    status = await asyncio.wait_for(process.wait(), 60)
    await process.close()
    await successor.stop()

    assert (status, told) == (0, {"jumps": 6, "own thread": 0, "another thread": 0})


LEAVE = """
leave = ctypes.CDLL({library!r})
def left(library, setter, call, *words):
    address = lambda function: ctypes.c_void_p(address_of(function))
    return leave.call_and_leave(address(setter), address(call), *words)
"""


async def test_a_thread_that_jumps_out_of_the_drivers_own_code_is_limited_as_before(
    container: Container, manager: VirtualManager, leave: Path
) -> None:
    told = await container.run(
        f"""{LEAVE.format(library=str(leave))}
driver, address = cuda(), ctypes.c_uint64()
assert driver.cuInit(0) == SUCCESS
jumps = [left(driver, driver.stand_in_call_back, driver.cuMemAlloc_v2, ctypes.byref(address),
              ctypes.c_size_t({MIB})) for _ in range(3)]
total, codes = memory(driver)[1], [allocate(driver, {4 * MIB})[0] for _ in range(40)]
tell(jumps=jumps, total=total, had=codes.count(SUCCESS) * {4 * MIB}, last=codes[-1])
"""
    )

    assert told == {"jumps": [1, 1, 1], "total": CAP, "had": CAP - 4 * MIB, "last": 2}
    assert manager.usage(ALLOCATION).devices[0].peak <= CAP


async def test_a_thread_that_jumps_out_of_nvml_sees_the_containers_memory_as_before(
    container: Container, leave: Path
) -> None:
    told = await container.run(
        f"""{LEAVE.format(library=str(leave))}
driver, management = cuda(), nvml()
driver.cuInit(0)
plain, device = (ctypes.c_ulonglong * 3)(), ctypes.c_void_p(1)
jumps = [left(management, management.stand_in_interrupt, management.nvmlDeviceGetMemoryInfo,
              device, plain) for _ in range(3)]
tell(jumps=jumps, again=management.nvmlDeviceGetMemoryInfo(device, plain), total=plain[0])
"""
    )

    assert told == {"jumps": [1, 1, 1], "again": 0, "total": CAP}


async def test_a_call_that_a_tool_makes_when_the_driver_calls_it_back_is_limited(
    container: Container, manager: VirtualManager
) -> None:
    told = await container.run(
        f"""
driver, inner = cuda(), []
assert driver.cuInit(0) == SUCCESS
@ctypes.CFUNCTYPE(None)
def call_back():
    inner.extend(allocate(driver, {4 * MIB})[0] for _ in range(40))
driver.stand_in_call_back(call_back)
outer = allocate(driver, {4 * MIB})[0]
tell(outer=outer, had=(inner.count(SUCCESS) + (outer == SUCCESS)) * {4 * MIB}, last=inner[-1])
"""
    )

    assert told == {"outer": 0, "had": CAP, "last": 2}
    assert manager.usage(ALLOCATION).devices[0].peak == CAP

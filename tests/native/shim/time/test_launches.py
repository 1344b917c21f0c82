"""Every way to take GPU time goes in a turn, and nothing else does."""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.sim.gpu import SimulatedGpus
from tests.native.gpu_node import GpuNode, machine_of
from tests.native.shim_container import Container
from tests.native.table.hook_table import TABLE, load

pytestmark = pytest.mark.namespaces

MILLISECOND = 1_000_000
CORES = 50
NOT_SIMULATED = {
    f"cuMemcpy{ends}{variant}"
    for ends in ("AtoA", "AtoD", "DtoA")
    for variant in ("", "_v2", "_v2_ptds")
}
"""Copies with arrays, whose contents the simulated driver does not have."""
LOOKS = {"cuLibraryGetKernel", "cuModuleGetFunction"}
"""They tell the shim the names of kernels, for the sake of launches, and take no GPU time."""


def rows(*kinds: str) -> list[str]:
    table = load("generate").parse_table(TABLE / "cuda.hooks")
    return [row.symbol for row in table if row.kind in kinds]


TAKING = sorted({*rows("launch", "work")} - NOT_SIMULATED - LOOKS)
"""All functions that take GPU time."""

STEPS = """
import os
from tests.native.programs import launch_client as lc
from tests.native.programs.launch_client import *
for number, step in enumerate({steps!r}):
    child = os.fork()
    if child == 0:
        lc.prepare()
        code = eval(step)
        os._exit(0 if code in (None, SUCCESS) else 1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    tell(status=status)
    wait_for(f"{folder}/step-{{number}}")
"""


class Meter:
    """What each step of a program launched in turns, by the container's own meter."""

    def __init__(self, container: Container, manager: VirtualManager, name: str) -> None:
        self._container, self._manager, self._name = container, manager, AllocationID(name)
        self._counted: list[int] = []
        self._before = 0
        self._lines: list[str] = []

    def _read(self, line: str) -> None:
        if json.loads(line) != {"status": 0}:
            self._lines.append(f"step {len(self._counted)}: {line}")
        now = self._manager.usage(self._name).devices[0].launches
        self._counted.append(now - self._before)
        self._before = now
        (self._container.work / f"step-{len(self._counted) - 1}").touch()

    async def counts(self, steps: Iterable[str]) -> list[int]:
        """Each in a process of its own, which knows nothing of the ones before."""
        script = STEPS.format(steps=[*steps], folder=self._container.work)
        command = (
            sys.executable,
            "-c",
            f"from tests.native.programs.shim_client import *\n{script}",
        )
        process = await self._container.start(command, self._read)
        try:
            assert await process.wait() == 0
        finally:
            await process.close()
        assert self._lines == []
        return self._counted


@pytest.fixture
def gpu(work: Path) -> Iterator[SimulatedGpus]:
    """Its memory is slow, so that fills and copies take a while."""
    simulated = SimulatedGpus.create(work, machine_of(memory_bandwidth=10**9))
    yield simulated
    simulated.close()


@pytest.fixture
async def meter(one_gpu: GpuNode, manager: VirtualManager) -> Meter:
    return Meter(await one_gpu.container(cores=CORES), manager, "one")


async def test_each_function_that_takes_gpu_time_is_a_launch_in_a_turn(meter: Meter) -> None:
    counted = await meter.counts(f"lc.way({name!r})" for name in TAKING)

    assert dict(zip(TAKING, counted, strict=True)) == dict.fromkeys(TAKING, 1)


FREE = {
    "nothing": "None",
    "an empty fill": "driver.cuMemsetD8_v2(lc.made['to'], 1, SIZE(0))",
    "no rows": "driver.cuMemsetD2D32_v2(lc.made['to'], SIZE(1024), 1, SIZE(256), SIZE(0))",
    "from the host": "driver.cuMemcpyHtoD_v2(lc.made['to'], bytes(1 << 20), SIZE(1 << 20))",
    "to the host": "driver.cuMemcpyDtoH_v2(bytes(1 << 20), lc.made['to'], SIZE(1 << 20))",
    "from unified host memory": "driver.cuMemcpy2D_v2(lc.inside(lc.FLAT, lc.UNIFIED, host='from'))",
    "to unified host memory": "driver.cuMemcpy3D_v2(lc.inside(lc.DEEP, lc.UNIFIED, host='to'))",
    "an upload": "driver.cuGraphUpload(lc.made['exec'], lc.made['stream'])",
}


async def test_what_takes_no_time_of_the_sms_or_does_not_say_so_is_none(meter: Meter) -> None:
    counted = await meter.counts(FREE.values())

    assert dict(zip(FREE, counted, strict=True)) == dict.fromkeys(FREE, 0)


THIN = {
    "one element": "driver.cuMemsetD8_v2(lc.made['to'], 1, SIZE(1))",
    "a column": "driver.cuMemsetD2D32_v2(lc.made['to'], SIZE(1024), 1, SIZE(1), SIZE(256))",
    "a row": "driver.cuMemsetD2D32_v2(lc.made['to'], SIZE(1024), 1, SIZE(256), SIZE(1))",
}


async def test_a_fill_of_whatever_shape_is_a_launch(meter: Meter) -> None:
    counted = await meter.counts(THIN.values())

    assert dict(zip(THIN, counted, strict=True)) == dict.fromkeys(THIN, 1)


UNIFIED = {
    "cuMemcpy2D_v2": "FLAT",
    "cuMemcpy2DAsync_v2": "FLAT",
    "cuMemcpy3D_v2": "DEEP",
    "cuMemcpy3DAsync_v2": "DEEP",
    "cuMemcpy3DPeer": "DEEP",
}


async def test_copies_of_blocks_inside_a_gpu_are_launches_under_unified_addresses_too(
    meter: Meter,
) -> None:
    stream = {name: ", lc.made['stream']" if "Async" in name else "" for name in UNIFIED}

    counted = await meter.counts(
        f"driver.{name}(lc.inside(lc.{kind}, lc.UNIFIED){stream[name]})"
        for name, kind in UNIFIED.items()
    )

    assert dict(zip(UNIFIED, counted, strict=True)) == dict.fromkeys(UNIFIED, 1)


CAPTURABLE = [name for name in TAKING if "Async" in name or name.startswith(("cuLaunchK", "cuGra"))]
CAPTURABLE = [name for name in CAPTURABLE if not name.endswith("_ptsz")]


async def test_what_is_captured_is_none_and_the_launch_of_its_graph_is_one(
    meter: Meter,
) -> None:
    steps = [f"lc.capture(lambda: lc.way({name!r})) and None" for name in CAPTURABLE]
    whole = f"lc.graph_of(lambda: [lc.way(n) for n in {CAPTURABLE!r}])"

    *captured, launched = await meter.counts(
        [*steps, f"driver.cuGraphLaunch({whole}, lc.made['stream'])"]
    )

    assert dict(zip(CAPTURABLE, captured, strict=True)) == dict.fromkeys(CAPTURABLE, 0)
    assert launched == 1


async def test_a_capture_is_not_taken_for_ended_because_another_was_to_end(meter: Meter) -> None:
    in_vain = "driver.cuStreamEndCapture(lc.new_stream(), lc.ROOM)"

    counted = await meter.counts(
        [f"lc.begin_capture() or [{in_vain}, lc.way('cuLaunchKernel', lc.made['stream'])][1]"]
    )

    assert counted == [0]


OPEN = {
    "never ended": "lc.begin_capture()",
    "with its stream gone": "lc.begin_capture() or driver.cuStreamDestroy_v2(lc.made['stream'])",
    "ended": "lc.capture(lambda: None) and None",
    "ended in vain": "lc.begin_capture() or driver.cuStreamEndCapture(lc.made['stream'], None)",
    "begun twice": "lc.begin_capture() or driver.cuStreamBeginCapture(lc.made['stream'])",
}


async def test_a_capture_frees_nothing_but_what_is_captured(meter: Meter) -> None:
    other = "lc.new_stream()"

    counted = await meter.counts(
        f"(({begun}), lc.way('cuLaunchKernel', {other}))[1]" for begun in OPEN.values()
    )

    assert dict(zip(OPEN, counted, strict=True)) == dict.fromkeys(OPEN, 1)


REFUSED = {
    "no grid": "driver.cuLaunchKernel(lc.made['function'], *lc.shape(0), None, None, None)",
    "a grid below 0": "driver.cuLaunchGrid(lc.made['function'], -1, 1)",
    "no function": "lc.driver.cuLaunch(None)",
    "a block too large": "driver.cuLaunchCooperativeKernel("
    "lc.made['function'], *lc.shape(1, 4096), None, lc.made['parameters'])",
    "a default stream": "lc.way('cuLaunchCooperativeKernelMultiDevice', HANDLE())",
    "no graph": "driver.cuGraphLaunch(None, lc.made['stream'])",
    "no memory": "driver.cuMemsetD8_v2(U64(4096), 1, SIZE(1 << 20))",
    "more than there is": "driver.cuMemsetD2D8_v2(lc.made['to'], *[SIZE(1 << 40)] * 4)",
    "from nowhere": "driver.cuMemcpyDtoD_v2(lc.made['to'], U64(8192), SIZE(1 << 20))",
    "of no shape": "driver.cuMemcpy3D_v2(None)",
}


async def test_what_the_driver_refuses_takes_no_time(meter: Meter, manager: VirtualManager) -> None:
    """Of 1,100 launches: one that is not seen to have ended counts for 100 us at least."""
    await meter.counts(f"0 in [{call} for _ in range(100)]" for call in REFUSED.values())

    manager.share_now(time.monotonic_ns(), {})
    assert manager.usage(AllocationID("one")).devices[0].charged_ns <= 50 * MILLISECOND


SEVERAL = """
from tests.native.programs.launch_client import *
from tests.native.programs import launch_client as lc
assert driver.cuInit(0) == 0
made.update(length=U64(5_000_000), parameters=(HANDLE * 1)())
made["parameters"][0] = ctypes.addressof(made["length"])
parts, addresses, contexts = [], [], []
for device in range(2):
    contexts.append(HANDLE())
    assert driver.cuCtxCreate_v2(ctypes.byref(contexts[-1]), 0, device) == 0
    made["function"] = lc.spin_function()
    parts.append(lc.part(lc.new_stream()))
    addresses.append(U64(allocate(driver, 1 << 20)[1]))
"""


@pytest.fixture
async def two_gpus(node: GpuNode) -> Container:
    return await node.container(dict.fromkeys((0, 1), 1 << 30), cores=CORES)


def counted(node: GpuNode) -> list[int]:
    usage = node.manager.usage(AllocationID("one"))
    return [device.launches for device in usage.devices]


async def test_a_launch_on_several_gpus_is_one_on_each(node: GpuNode, two_gpus: Container) -> None:
    launch = "driver.cuLaunchCooperativeKernelMultiDevice((lc.Part * 2)(*parts), 2, 0)"

    told = await two_gpus.run(f"{SEVERAL}\ncodes = [{launch} for _ in range(5)]\ntell(codes=codes)")

    assert told == {"codes": [0] * 5}
    assert counted(node) == [5, 5]


async def test_a_copy_to_another_gpu_is_none(node: GpuNode, two_gpus: Container) -> None:
    ends = "addresses[1], contexts[1], addresses[0], contexts[0]"
    copy = f"driver.cuMemcpyPeerAsync({ends}, SIZE(1 << 20), None)"

    told = await two_gpus.run(f"{SEVERAL}\ntell(code={copy})")

    assert (told, counted(node)) == ({"code": 0}, [0, 0])

"""NVIDIA's own nvidia-ml-py behind the shim, on the simulated NVML."""

from pathlib import Path

import pytest

from gpumanager.sim.gpu import SimulatedGpus
from gpumanager.units import MIB
from tests.native.gpu_node import LIMIT, GpuNode, bare_container
from tests.native.shim_container import Container

pytestmark = pytest.mark.namespaces

BOTH = (0, 1)  # devices


@pytest.fixture
def bare(work: Path, machine: SimulatedGpus) -> Container:
    return bare_container(work, machine, BOTH)


WALK = """
import inspect, pynvml

def ask(function, *arguments):
    try:
        return str(function(*arguments))
    except pynvml.NVMLError as error:
        return type(error).__name__

def takes_one(function):
    try:
        asked = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return sum(p.default is p.empty for p in asked) == 1

pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
functions = {
    name: function
    for name, function in vars(pynvml).items()
    if name.startswith("nvmlDeviceGet") and "Handle" not in name and takes_one(function)
}
tell(walk=[{name: ask(function, handle) for name, function in functions.items()}
           for handle in handles])
"""


GROWS = "nvmlDeviceGetTotalEnergyConsumption"
"""From one program to the next."""


async def test_nothing_but_memory_looks_different_behind_the_shim(
    node: GpuNode, bare: Container
) -> None:
    plain = (await bare.run(WALK))["walk"]
    limited = (await (await node.container(shown=BOTH)).run(WALK))["walk"]

    assert len(plain[0]) > 100
    changed = {name for name, answer in limited[0].items() if answer != plain[0][name]}
    assert changed - {GROWS} == {"nvmlDeviceGetMemoryInfo"}
    assert f"total: {LIMIT} B" in limited[0]["nvmlDeviceGetMemoryInfo"]
    assert limited[1] | {GROWS: plain[1][GROWS]} == plain[1]  # a GPU that is not of the container


async def test_each_gpu_shows_the_limit_that_the_container_has_on_it(node: GpuNode) -> None:
    container = await node.container({0: LIMIT, 1: LIMIT // 2})

    told = await container.run(
        """
import pynvml
pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(2)]
tell(totals=[pynvml.nvmlDeviceGetMemoryInfo(gpu).total for gpu in gpus])
"""
    )

    assert told == {"totals": [LIMIT, LIMIT // 2]}


LOOK = """
import pynvml
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
memory = [pynvml.nvmlDeviceGetMemoryInfo(gpu), pynvml.nvmlDeviceGetMemoryInfo(gpu, 0x2000028)]
lists = [function(gpu) for function in (pynvml.nvmlDeviceGetComputeRunningProcesses_v2,
                                        pynvml.nvmlDeviceGetComputeRunningProcesses_v3)]
details = pynvml.nvmlDeviceGetRunningProcessDetailList(gpu, 0x1000018, 0)
def shown(entries):
    return sorted([entry.pid, entry.usedGpuMemory] for entry in entries)
def used(function):
    try:
        return [[sample.pid, sample.smUtil] for sample in function(gpu, 0)]
    except pynvml.NVMLError as error:
        return type(error).__name__
"""


async def test_two_containers_on_one_gpu_do_not_see_each_other(
    node: GpuNode, bare: Container
) -> None:
    one, other = await node.container(), await node.container(name="other")
    neighbour = other.begin(
        f"""
import os
driver = cuda()
begin(driver)
assert allocate(driver, {500 * MIB})[0] == 0
pause()
tell(pid=os.getpid())
"""
    )
    await neighbour.pauses()

    told = await one.run(
        f"""
import os
driver = cuda()
begin(driver)
assert allocate(driver, {300 * MIB})[0] == 0
{LOOK}
tell(pid=os.getpid(), memory=[[seen.total, seen.used, seen.free] for seen in memory],
     lists=[shown(entries) for entries in (*lists, details)])
"""
    )
    unlimited = await bare.run(f"{LOOK}tell(shown=shown(lists[1]))")
    neighbour_pid = (await neighbour.ends())["pid"]

    assert told["memory"] == [[LIMIT, 300 * MIB, LIMIT - 300 * MIB]] * 2
    assert told["lists"] == [[[told["pid"], 300 * MIB]]] * 3
    assert unlimited["shown"] == [[neighbour_pid, 500 * MIB]]  # the driver itself would have told
    assert node.held() == 0


async def test_only_the_containers_own_utilisation_shows(node: GpuNode, bare: Container) -> None:
    one, other = await node.container(), await node.container(name="other")
    neighbour = other.begin(
        """
driver = cuda()
kernel = begin(driver)
spin(driver, kernel, 600_000_000_000)
pause()
"""
    )
    await neighbour.pauses()
    look = f"""
{LOOK}
soon(lambda: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 100, 10)
tell(device=pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
     used=[used(pynvml.nvmlDeviceGetProcessUtilization),
           used(pynvml.nvmlDeviceGetProcessesUtilizationInfo)])
"""

    told, unlimited = await one.run(look), await bare.run(look)
    await neighbour.ends()

    assert told == {"device": 100, "used": ["NVMLError_NotFound"] * 2}
    assert [[percent for _, percent in samples] for samples in unlimited["used"]] == [[100], [100]]


async def test_the_drivers_errors_stand(node: GpuNode) -> None:
    container = await node.container()

    told = await container.run(
        """
from tests.native.programs.nvml_client import *
management, gpu, count = nvml(), ctypes.c_void_p(), UINT(0)
lists = [f"nvmlDeviceGet{name}{version}" for name in LISTS for version in VERSIONS]
def all_answers(device, count):
    return {getattr(management, name)(device, count, None) for name in lists} | {
        management.nvmlDeviceGetProcessUtilization(device, None, count, ULONG(0)),
    }
before = all_answers(None, ctypes.byref(count))
assert management.nvmlInit_v2() == 0
assert management.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu)) == 0
tell(before=list(before), no_device=list(all_answers(ctypes.c_void_p(1), ctypes.byref(count))),
     no_count=list(all_answers(gpu, None)),
     no_struct=[management.nvmlDeviceGetRunningProcessDetailList(gpu, None),
                management.nvmlDeviceGetProcessesUtilizationInfo(gpu, None),
                management.nvmlDeviceGetBAR1MemoryInfo(gpu, None)],
     accounting=[management.nvmlDeviceGetAccountingPids(gpu, ctypes.byref(count), None),
                 account(management, gpu, own_pid())[0]])
"""
    )

    assert told["before"] == [1]  # not initialised
    assert told["no_device"] == told["no_count"] == [2]  # invalid argument
    assert told["no_struct"] == [2, 2, 2]
    assert told["accounting"] == [3, 3]  # not supported: the mode is off

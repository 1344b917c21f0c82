"""Whose processes are on the GPUs: the driver's pids, and the pods of their cgroups."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.nvml_service import NvmlService
from gpumanager.gpu.usage.nvml_pass import NvmlQuery, NvmlReading
from gpumanager.gpu.values import GpuUUID
from gpumanager.runtime.cgroup import CgroupFiles
from gpumanager.runtime.processes import Containers, GpuTenants
from gpumanager.units import Bytes
from tests.runtime.cgroup_node import CgroupNode
from tests.runtime.cgroup_texts import PATHS, UID, v2

GPU = GpuUUID("GPU-0")


def listing(pids: Mapping[int, Bytes | None], *, complete: bool = True) -> NvmlService:
    """NVML that lists these processes of one GPU."""
    return NvmlService(lambda _: NvmlReading(held={GPU: pids}, complete=complete))


async def test_a_process_counts_for_its_pod(tmp_path: Path) -> None:
    node = CgroupNode(tmp_path)
    node.process(os.getpid(), v2(PATHS["cgroupfs, burstable"]))
    containers = Containers(node.mounted(), node.proc)

    pods = await GpuTenants(listing({os.getpid(): Bytes(1)}), containers).pods()

    assert pods == {GPU: frozenset({UID})}


async def test_processes_of_no_pod_and_processes_that_are_gone_are_left_out() -> None:
    containers = Containers(CgroupFiles.here())
    gone = 4_194_303

    pods = await GpuTenants(listing({os.getpid(): None, gone: Bytes(7)}), containers).pods()

    assert pods == {GPU: frozenset()}


async def test_a_driver_that_does_not_tell_is_not_one_without_processes() -> None:
    def silent(_: NvmlQuery) -> NvmlReading:
        raise GpuManagerError("NVML is away")

    containers = Containers(CgroupFiles.here())

    assert await GpuTenants(NvmlService(silent), containers).pods() is None
    assert await GpuTenants(listing({}, complete=False), containers).pods() is None


async def test_nobody_waits_for_a_driver_that_hangs_nor_believes_what_it_says_later() -> None:
    go, asked = threading.Event(), threading.Semaphore(0)
    answers = [NvmlReading(held={GPU: {os.getpid(): Bytes(1)}}), NvmlReading()]

    def hanging(_: NvmlQuery) -> NvmlReading:
        asked.release()
        go.wait()
        return answers.pop(0)

    nvml, containers = NvmlService(hanging, apart_seconds=0), Containers(CgroupFiles.here())
    impatient = GpuTenants(nvml, containers, seconds=0.01)

    assert [await impatient.pods(), await impatient.pods()] == [None, None]
    assert await asyncio.to_thread(asked.acquire)
    assert not asked.acquire(blocking=False)
    patient = asyncio.create_task(GpuTenants(nvml, containers, seconds=120).pods())
    await asyncio.sleep(0)
    go.set()

    assert await patient == {}


def test_a_driver_that_hangs_does_not_keep_the_agent_from_ending() -> None:
    program = Path(__file__).with_name("programs") / "hanging_driver.py"

    said = subprocess.check_output([sys.executable, program], timeout=60, text=True)

    assert said == "None\n"

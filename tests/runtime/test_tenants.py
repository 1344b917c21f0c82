"""Whose processes are on the GPUs: the driver's pids, and the pods of their cgroups."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.runtime.cgroup_files import CgroupFiles
from gpumanager.runtime.processes import Containers
from gpumanager.runtime.tenants import GpuTenants
from tests.runtime.cgroup_node import CgroupNode
from tests.runtime.cgroup_texts import PATHS, UID, v2

GPU = GpuUUID("GPU-0")


async def test_a_process_counts_for_its_pod(tmp_path: Path) -> None:
    node = CgroupNode(tmp_path)
    node.process(os.getpid(), v2(PATHS["cgroupfs, burstable"]))
    containers = Containers(node.mounted(), node.proc)

    pods = await GpuTenants(lambda: {GPU: {os.getpid(): 1}}, containers).pods()

    assert pods == {GPU: frozenset({UID})}


async def test_processes_of_no_pod_and_processes_that_are_gone_are_left_out() -> None:
    containers = Containers(CgroupFiles.here())
    gone = 4_194_303

    pods = await GpuTenants(lambda: {GPU: {os.getpid(): None, gone: 7}}, containers).pods()

    assert pods == {GPU: frozenset()}


async def test_a_driver_that_does_not_tell_is_not_one_without_processes() -> None:
    def silent() -> Mapping[GpuUUID, Mapping[int, object]]:
        raise GpuManagerError("NVML is away")

    assert await GpuTenants(silent, Containers(CgroupFiles.here())).pods() is None


async def test_nobody_waits_for_a_driver_that_hangs_nor_believes_what_it_says_later() -> None:
    go, asked = threading.Event(), threading.Semaphore(0)
    answers = [{GPU: {os.getpid(): 1}}, {}]

    def hanging() -> Mapping[GpuUUID, Mapping[int, object]]:
        asked.release()
        go.wait()
        return answers.pop(0)

    tenants = GpuTenants(hanging, Containers(CgroupFiles.here()), seconds=0.01)

    assert [await tenants.pods(), await tenants.pods()] == [None, None]
    go.set()
    assert tenants._asked is not None
    await asyncio.wait((tenants._asked,))
    tenants._seconds = 5.0

    assert await tenants.pods() == {}
    assert asked.acquire(blocking=False)
    assert asked.acquire(blocking=False)
    assert not asked.acquire(blocking=False)


def test_a_driver_that_hangs_does_not_keep_the_agent_from_ending() -> None:
    program = Path(__file__).with_name("programs") / "hanging_driver.py"

    said = subprocess.check_output([sys.executable, program], timeout=60, text=True)

    assert said == "None\n"

"""Whose processes are on the GPUs: the driver's pids, and the pods of their cgroups."""

import os
from collections.abc import Mapping
from pathlib import Path

from cgroup_node import CgroupNode
from cgroup_texts import PATHS, UID, v2

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.runtime.cgroup_files import CgroupFiles
from gpumanager.runtime.processes import Containers
from gpumanager.runtime.tenants import GpuTenants

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

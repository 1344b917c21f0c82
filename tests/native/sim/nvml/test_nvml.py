"""The simulated libnvidia-ml through NVIDIA's own nvidia-ml-py."""

import ctypes
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml as nv
import pytest

from gpumanager.gpu.nvml import discover_here
from tests.native.programs.sim_client import alloc, init, spin
from tests.native.sim.program import on
from tests.native.sim_box import SimBox

MACHINE = {"cuda_version": 12050}
GIB = 1 << 30
LONG = 600_000_000_000

nv.nvmlInit()
handles = [nv.nvmlDeviceGetHandleByIndex(index) for index in range(nv.nvmlDeviceGetCount())]
h = handles[0]


def newer(stamp: int = 0) -> list[Any]:
    """Samples of processes since then."""
    try:
        rows = nv.nvmlDeviceGetProcessUtilization(h, stamp)
    except (nv.NVMLError_NotFound, nv.NVMLError_InsufficientSize):  # one more while it was asked
        return []
    return [row for row in rows if row.timeStamp > stamp]


def until(found: Callable[[], Any]) -> Any:
    """What it finds as soon as there is something."""
    end = time.monotonic() + 60
    while not (one := found()):
        assert time.monotonic() < end
    return one


def test_gpus_are_listed_by_index_with_what_identifies_them(box: SimBox) -> None:
    for handle, gpu in zip(handles, box.machine.topology.gpus, strict=True):
        assert nv.nvmlDeviceGetName(handle) == "Tesla T4"
        assert nv.nvmlDeviceGetUUID(handle) == gpu.uuid
        assert nv.nvmlDeviceGetPciInfo(handle).busId == gpu.bus_id
        assert (nv.nvmlDeviceGetMinorNumber(handle), nv.nvmlDeviceGetIndex(handle)) == (
            gpu.minor,
            gpu.index,
        )
        for found in (
            nv.nvmlDeviceGetHandleByUUID(gpu.uuid),
            nv.nvmlDeviceGetHandleByPciBusId(gpu.bus_id),
            nv.nvmlDeviceGetHandleByPciBusId(gpu.bus_id[4:].lower()),
        ):
            assert nv.nvmlDeviceGetIndex(found) == gpu.index


def test_versions_are_the_machines() -> None:
    assert (nv.nvmlSystemGetDriverVersion(), nv.nvmlSystemGetCudaDriverVersion()) == (
        "555.58.02",
        12050,
    )
    assert nv.nvmlDeviceGetCudaComputeCapability(h) == (7, 5)
    assert nv.nvmlDeviceGetArchitecture(h) == 6


@on(cuda_version=13040)
def test_a_release_calls_itself_by_the_name_of_its_file() -> None:
    assert nv.nvmlSystemGetDriverVersion() == "615.71.09"


def test_memory_and_processes_are_those_of_the_shared_state(box: SimBox) -> None:
    other = box.client()
    assert [init(), alloc(3 << 30), other("init() or alloc(1 << 30)")] == [0, 0, 0]
    held = {process.pid: process.bytes_now for process in box.gpus.processes()}
    assert sorted(held.values()) == [GIB, 3 * GIB]

    for version in (None, nv.nvmlMemory_v2):
        told = nv.nvmlDeviceGetMemoryInfo(h, version)
        assert (told.used, told.total) == (4 * GIB, 16 * GIB)
    for listed in (
        nv.nvmlDeviceGetComputeRunningProcesses,
        nv.nvmlDeviceGetComputeRunningProcesses_v2,
        nv.nvmlDeviceGetComputeRunningProcesses_v3,
    ):
        assert {one.pid: one.usedGpuMemory for one in listed(h)} == held
        assert listed(handles[1]) == []


def test_the_second_memory_struct_needs_its_version() -> None:
    nvml = ctypes.CDLL("libnvidia-ml.so.1")

    assert nvml.nvmlDeviceGetMemoryInfo_v2(h, (ctypes.c_uint * 10)(1)) == 25


def test_utilisation_is_that_of_the_last_sample_period(box: SimBox) -> None:
    assert (init(), nv.nvmlDeviceGetUtilizationRates(h).gpu) == (0, 0)
    assert spin(LONG) == 0

    until(lambda: nv.nvmlDeviceGetUtilizationRates(h).gpu == 100)

    (sample,) = nv.nvmlDeviceGetProcessUtilization(h, 0)
    assert (sample.pid, sample.smUtil) == (box.gpus.processes()[0].pid, 100)
    assert 0 <= time.time() - sample.timeStamp / 1e6 < 10


def test_each_period_has_one_sample_whose_stamp_stays() -> None:
    assert [init(), spin(LONG)] == [0, 0]

    stamps = [0]
    for _ in range(3):
        stamps.append(until(lambda: newer(stamps[-1]))[0].timeStamp)

    steps = [later - earlier for earlier, later in itertools.pairwise(stamps[1:])]
    assert all(round(step * 6 / 1e6) * 166_667 - step in range(-9, 10) for step in steps)


@on(slice_ns=1_024_000, samples="ONE_PROCESS")
def test_nvml_tells_what_the_account_tells_where_a_sample_names_one_process(box: SimBox) -> None:
    def accounted() -> list[list[int]]:
        rows = box.gpus.utilization(box.uuid, 0)
        return [[row.pid, row.percent, row.sampled_ns // 1_000_000] for row in rows or ()]

    other = box.client()
    assert [init(), spin(LONG), other(f"init() or spin({LONG})")] == [0, 0, 0]
    until(lambda: len(newer()) == 2)
    before, after, seen = [[0]], [[1]], list[list[int]]()
    while before != after:  # or a sample period ended meanwhile
        before = accounted()
        started = (time.time() - time.monotonic()) * 1e6
        seen = [[s.pid, s.smUtil, int((s.timeStamp - started) / 1000)] for s in newer()]
        after = accounted()

    assert [row[:2] for row in seen] == [row[:2] for row in before]
    assert all(abs(a[2] - b[2]) <= 1 for a, b in zip(seen, before, strict=True))


@on(samples="NONE")
def test_nvml_says_that_a_driver_without_samples_has_none() -> None:
    assert [init(), spin(LONG)] == [0, 0]
    with pytest.raises(nv.NVMLError_NotSupported):
        nv.nvmlDeviceGetProcessUtilization(h, 0)


def test_without_newer_samples_processes_are_listed_with_old_ones_if_there_are_any(
    box: SimBox,
) -> None:
    with pytest.raises(nv.NVMLError_NotFound):
        nv.nvmlDeviceGetProcessUtilization(h, 0)
    assert [init(), box.client()("init()")] == [0, 0]

    rows = nv.nvmlDeviceGetProcessUtilization(h, (int(time.time()) + 3600) * 10**6)

    told = {(row.pid, row.smUtil, row.timeStamp) for row in rows}
    assert told == {(process.pid, 0, 0) for process in box.gpus.processes()}
    assert len(rows) == 2


@on(count=4)
def test_levels_and_numa_nodes_are_the_machines() -> None:
    assert [nv.nvmlDeviceGetTopologyCommonAncestor(h, other) for other in handles[1:]] == [
        10,
        50,
        50,
    ]
    assert [nv.nvmlDeviceGetNumaNodeId(handle) for handle in handles] == [0, 0, 1, 1]


@on(count=2, nvlinks=0)
@on(count=2, nvlinks=1)
@on(count=2, nvlinks=2)
@on(count=4, nvlinks=12)
def test_nvlinks_end_at_gpus_or_where_all_are_joined_alike_at_switches(box: SimBox) -> None:
    gpus = box.machine.topology.gpus
    nvlinks = box.machine.topology.bond(0, 1).nvlinks
    for link in range(nvlinks):
        kind = nv.nvmlDeviceGetNvLinkRemoteDeviceType(h, link)
        assert nv.nvmlDeviceGetNvLinkState(h, link) == 1
        if len(gpus) > 2:
            assert kind == 2
        else:
            far = nv.nvmlDeviceGetNvLinkRemotePciInfo(h, link).busId
            assert (kind, far) == (0, gpus[1].bus_id)
    with pytest.raises(nv.NVMLError_InvalidArgument if nvlinks else nv.NVMLError_NotSupported):
        nv.nvmlDeviceGetNvLinkState(h, nvlinks)


@on(count=4, nvlinks=4)
def test_the_node_agents_own_discovery_finds_the_machine_again(box: SimBox) -> None:
    wanted, found = box.machine.topology, discover_here()

    assert found.bonds == wanted.bonds
    for one, other in zip(found.gpus, wanted.gpus, strict=True):
        assert replace(one, model="T4", numa_node=other.numa_node) == other

"""Which libraries a container is led to, by what the operator chose."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.grants.grant import DevicePluginSource, Grant, shares_of
from gpumanager.ids import AllocationID
from gpumanager.isolation.edits import ContainerEdits, DeviceFiles
from gpumanager.isolation.table import Isolations, isolation_of
from gpumanager.placement.values import Evaluator
from gpumanager.sim.in_memory import SimulatedLimits
from gpumanager.volume.values import DriverVolumes
from tests.deviceplugin.admission.admission_node import VOLUMES, gpus

GPUS = gpus(1).gpus


def answered(volumes: DriverVolumes, evaluator: Evaluator) -> ContainerEdits:
    whole = evaluator is not Evaluator.SHARE
    shares = shares_of((gpu.uuid for gpu in GPUS), 1, 4, exclusive=whole)
    grant = Grant(
        AllocationID("a1"),
        DevicePluginSource("b1", ("c-0",)),
        shares,
        isolation=isolation_of(shares),
    )
    files = DeviceFiles(Path("/nowhere"), extra=("/dev/fuse",))
    isolations = Isolations(SimulatedLimits(), volumes, files)
    return asyncio.run(isolations.prepare(grant, GPUS))


def mounts(volumes: DriverVolumes, evaluator: Evaluator) -> dict[str, str]:
    return {one.container_path: one.host_path for one in answered(volumes, evaluator).mounts}


def test_the_shims_lie_over_a_libcuda_of_the_image_where_a_gpu_is_shared() -> None:
    volumes = replace(VOLUMES, over_compat=True)

    share, whole = (mounts(volumes, e) for e in (Evaluator.SHARE, Evaluator.FRAGMENT))

    assert share["/usr/local/cuda/compat"] == "/vm/alloc/a1/driver/lib64"
    assert whole == {"/usr/local/nvidia": "/vol/origin"}


def test_the_image_keeps_its_own_where_that_is_wanted() -> None:
    assert "/usr/local/cuda/compat" not in mounts(VOLUMES, Evaluator.SHARE)


@pytest.mark.parametrize(
    ("compat32", "path"),
    [
        (False, "/usr/local/nvidia/lib64"),
        (True, "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"),
    ],
)
def test_32_bit_programs_find_the_driver_where_that_is_wanted(compat32: object, path: str) -> None:
    volumes = replace(VOLUMES, compat32=bool(compat32))

    assert answered(volumes, Evaluator.SHARE).envs["LD_LIBRARY_PATH"] == path


def test_nvidias_runtime_is_told_of_whole_gpus_alone() -> None:
    share, whole = (answered(VOLUMES, e).envs for e in (Evaluator.SHARE, Evaluator.FRAGMENT))

    assert share["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert whole["NVIDIA_VISIBLE_DEVICES"] == GPUS[0].uuid
    assert share["VCUDA_GPUS"] == whole["VCUDA_GPUS"] == GPUS[0].uuid


def test_julia_is_kept_from_the_libcuda_that_it_brings_where_a_gpu_is_shared() -> None:
    share, whole = (answered(VOLUMES, e).envs for e in (Evaluator.SHARE, Evaluator.FRAGMENT))

    assert share["JULIA_CUDA_USE_COMPAT"] == "false"
    assert "JULIA_CUDA_USE_COMPAT" not in whole


def test_extra_devices_are_given_as_they_are() -> None:
    devices = answered(VOLUMES, Evaluator.SHARE).devices

    assert (devices[-1].container_path, devices[-1].host_path) == ("/dev/fuse", "/dev/fuse")

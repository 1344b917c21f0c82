"""Which libraries a container is led to, by what the operator chose."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpumanager.grants.journal import Allocation
from gpumanager.isolation.answer import Answer, DeviceFiles, answer
from gpumanager.placement.values import Evaluator
from gpumanager.virtual.values import AllocationID
from gpumanager.volume.values import DriverVolumes
from tests.allocator.admission_node import VOLUMES, gpus

GPUS = gpus(1).gpus


def answered(volumes: DriverVolumes, evaluator: Evaluator) -> Answer:
    allocation = Allocation(
        AllocationID("a1"), "b1", ("c-0",), (), tuple(g.uuid for g in GPUS), evaluator, "", 0.0
    )
    directory = Path("/vm/a1") if evaluator is Evaluator.SHARE else None
    files = DeviceFiles(Path("/nowhere"), extra=("/dev/fuse",))
    return answer(
        allocation, GPUS, volumes=volumes, files=files, directory=directory, memory_blocks=4
    )


def mounts(volumes: DriverVolumes, evaluator: Evaluator) -> dict[str, str]:
    return {one.container_path: one.host_path for one in answered(volumes, evaluator).mounts}


def test_the_shims_lie_over_a_libcuda_of_the_image_where_a_gpu_is_shared() -> None:
    volumes = replace(VOLUMES, over_compat=True)

    share, whole = (mounts(volumes, e) for e in (Evaluator.SHARE, Evaluator.FRAGMENT))

    assert share["/usr/local/cuda/compat"] == "/vol/nvidia/lib64"
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


def test_extra_devices_are_given_as_they_are() -> None:
    devices = answered(VOLUMES, Evaluator.SHARE).devices

    assert (devices[-1].container_path, devices[-1].host_path) == ("/dev/fuse", "/dev/fuse")

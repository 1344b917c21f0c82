"""The answer to Allocate: devices, mounts, environment and annotations of one container.

The shape is the original's. It names no pod: the directory mounted at /etc/vcuda belongs to the
allocation, whoever turns out to run in it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpumanager.gpu.values import Gpu
from gpumanager.grants.journal import Allocation
from gpumanager.names import (
    ANNOTATION_DEVICE,
    CONTAINER_COMPAT,
    CONTAINER_DRIVER,
    CONTAINER_VCUDA,
    VCORE,
    VMEMORY,
)
from gpumanager.units import MEMORY_BLOCK, Bytes
from gpumanager.virtual.values import Limit
from gpumanager.volume.values import DriverVolumes

ENV_ALLOCATION: Final = "VCUDA_ALLOCATION"
"""Names the allocation inside its container; new."""

ENV_GPUS: Final = "VCUDA_GPUS"
"""The UUIDs of its GPUs, with commas between."""

ENV_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""What NVIDIA's container runtime goes by. Agents before VCUDA_GPUS said the UUIDs with it."""

VOID: Final = "void"
"""To that runtime: nothing. Where it is the node's default it would mount the driver's own
libraries beside the shims, and an image with another LD_LIBRARY_PATH would find those."""

CONTROL: Final = ("nvidiactl", "nvidia-uvm")
CONTROL_IF_PRESENT: Final = ("nvidia-uvm-tools", "nvidia-modeset")


@dataclass(frozen=True, slots=True)
class Mount:
    """A host directory to see, read-only, in the container."""

    container_path: str
    host_path: str


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A device node of the host, and its name in the container."""

    container_path: str
    host_path: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What Allocate says of one resource of one container; empty for memory."""

    devices: tuple[DeviceFile, ...] = ()
    mounts: tuple[Mount, ...] = ()
    envs: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceFiles:
    """Where the host's device nodes lie; a container always sees them in /dev.

    control: given with every GPU; control_if_present: where the host has them; extra: full paths
    given as they are (the original's extra-config).
    """

    directory: Path = Path("/dev")
    control: tuple[str, ...] = CONTROL
    control_if_present: tuple[str, ...] = CONTROL_IF_PRESENT
    extra: tuple[str, ...] = ()

    def of(self, gpus: tuple[Gpu, ...]) -> tuple[DeviceFile, ...]:
        where = str(self.directory)
        present = (n for n in self.control_if_present if os.path.exists(f"{where}/{n}"))  # noqa: PTH110 - in each Allocate
        names = (*(f"nvidia{gpu.minor}" for gpu in gpus), *self.control, *present)
        own = (DeviceFile(f"/dev/{name}", f"{where}/{name}") for name in names)
        return (*own, *(DeviceFile(path, path) for path in self.extra))


def answer(
    allocation: Allocation,
    gpus: tuple[Gpu, ...],
    *,
    volumes: DriverVolumes,
    files: DeviceFiles,
    directory: Path | None,
    memory_blocks: int | None,
) -> Answer:
    """gpus: the allocation's. directory: its own, None for whole GPUs.

    memory_blocks: what it asks for, None if not known yet.
    """
    uuids = ",".join(gpu.uuid for gpu in gpus)
    return Answer(
        devices=files.of(gpus),
        mounts=_mounts(allocation, volumes, directory),
        envs={
            "LD_LIBRARY_PATH": _library_path(volumes),
            ENV_VISIBLE: uuids if allocation.whole else VOID,
            ENV_GPUS: uuids,
            ENV_ALLOCATION: allocation.allocation,
        },
        annotations=_annotations(allocation, gpus, memory_blocks),
    )


def limits(allocation: Allocation, memory_blocks: int) -> tuple[Limit, ...]:
    """What the virtual manager holds a share to. Nothing for whole GPUs."""
    if allocation.whole:
        return ()
    ceiling = max(allocation.ceiling or 0, allocation.cores)
    memory = Bytes(memory_blocks * MEMORY_BLOCK)
    return tuple(
        Limit(gpu, memory, allocation.cores, ceiling, allocation.burst_us)
        for gpu in allocation.gpus
    )


def _mounts(
    allocation: Allocation, volumes: DriverVolumes, directory: Path | None
) -> tuple[Mount, ...]:
    driver = volumes.whole if allocation.whole else volumes.shared
    mounts = [Mount(str(CONTAINER_DRIVER), str(driver))]
    if directory is not None:
        mounts.append(Mount(str(CONTAINER_VCUDA), str(directory)))
    if volumes.over_compat and not allocation.whole:
        mounts.append(Mount(str(CONTAINER_COMPAT), str(driver / "lib64")))
    return tuple(mounts)


def _library_path(volumes: DriverVolumes) -> str:
    """The loader passes over libraries of the other width."""
    directories = ("lib64", "lib") if volumes.compat32 else ("lib64",)
    return ":".join(f"{CONTAINER_DRIVER}/{name}" for name in directories)


def _annotations(
    allocation: Allocation, gpus: tuple[Gpu, ...], memory_blocks: int | None
) -> dict[str, str]:
    found = {
        VCORE: str(allocation.cores),
        ANNOTATION_DEVICE: ",".join(f"/dev/nvidia{gpu.minor}" for gpu in gpus),
    }
    if memory_blocks is not None:
        found[VMEMORY] = str(memory_blocks * MEMORY_BLOCK)
    return found

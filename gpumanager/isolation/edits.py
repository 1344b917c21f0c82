"""What a container is given for its grant, whatever interface it is handed over by.

It names no pod: a directory that is mounted belongs to the grant, whoever turns out to run in it.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gpumanager.gpu.values import Gpu
from gpumanager.names import CONTAINER_DRIVER
from gpumanager.volume.values import DriverVolumes

ENV_ALLOCATION: Final = "VCUDA_ALLOCATION"
"""Names the grant inside its container; new."""

ENV_GPUS: Final = "VCUDA_GPUS"
"""The UUIDs of its GPUs, with commas between."""

ENV_VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""What NVIDIA's container runtime goes by. Agents before VCUDA_GPUS said the UUIDs with it."""

VOID: Final = "void"
"""To that runtime: nothing. Where it is the node's default it would mount the driver's own
libraries beside the shims, and an image with another LD_LIBRARY_PATH would find those."""

ENV_JULIA: Final = "JULIA_CUDA_USE_COMPAT"
"""CUDA.jl goes by it: unless it is false, it opens a newer libcuda that it brings, by its path."""

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
class ContainerEdits:
    """What one container gets. cdi: names of CDI devices, which bring the rest."""

    devices: tuple[DeviceFile, ...] = ()
    mounts: tuple[Mount, ...] = ()
    envs: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi: tuple[str, ...] = ()

    def __add__(self, more: "ContainerEdits") -> "ContainerEdits":
        return ContainerEdits(
            (*self.devices, *more.devices),
            (*self.mounts, *more.mounts),
            {**self.envs, **more.envs},
            {**self.annotations, **more.annotations},
            (*self.cdi, *more.cdi),
        )


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


def driver(volumes: DriverVolumes, directory: Path) -> ContainerEdits:
    """Return the driver's libraries in `directory`. The loader passes over those of the other
    width."""
    widths = ("lib64", "lib") if volumes.compat32 else ("lib64",)
    return ContainerEdits(
        mounts=(Mount(str(CONTAINER_DRIVER), str(directory)),),
        envs={"LD_LIBRARY_PATH": ":".join(f"{CONTAINER_DRIVER}/{name}" for name in widths)},
    )

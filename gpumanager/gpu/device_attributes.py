"""What else a node's GPUs and driver are, as NVML tells: generation, PCIe root, versions."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pynvml

from gpumanager.gpu.nvml import SYSFS, NvmlError, ask, driver, text
from gpumanager.gpu.nvml_service import ANSWER_SECONDS, NvmlService
from gpumanager.gpu.values import Gpu, GpuUUID, Topology

ARCHITECTURES: Final = {
    value: name.removeprefix("NVML_DEVICE_ARCH_").title()
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_DEVICE_ARCH_") and value != pynvml.NVML_DEVICE_ARCH_UNKNOWN
}
"""NVML's numbers: 7 is `Ampere`."""


@dataclass(frozen=True, slots=True)
class DeviceAttributes:
    """Of those GPUs of which it is known. cuda: the newest that the driver knows, `12.5`.

    pcie_roots: `pci0000:80`, the host bridge as sysfs names it.
    """

    cuda: str = ""
    architectures: Mapping[GpuUUID, str] = field(default_factory=dict)
    pcie_roots: Mapping[GpuUUID, str] = field(default_factory=dict)


class KnownAttributes:
    """Asks once for each topology: a GPU may come while the agent runs."""

    def __init__(self, nvml: NvmlService, sysfs: Path = SYSFS) -> None:
        self._nvml = nvml
        self._sysfs = sysfs
        self._of: Topology | None = None
        self._known = DeviceAttributes()

    async def of(self, topology: Topology) -> DeviceAttributes:
        """Return the attributes, without those that NVML does not give in time."""
        if topology is not self._of:
            self._known = await device_attributes(self._nvml, topology, self._sysfs)
            self._of = topology
        return self._known


async def device_attributes(
    nvml: NvmlService, topology: Topology, sysfs: Path = SYSFS, seconds: float = ANSWER_SECONDS
) -> DeviceAttributes:
    """Return the attributes, without those that NVML does not give in time."""
    roots = {gpu.uuid: root for gpu in topology.gpus if (root := pcie_root(sysfs, gpu))}
    try:
        cuda, architectures = await nvml.ask(partial(_of_driver, topology), seconds)
    except NvmlError:
        return DeviceAttributes(pcie_roots=roots)
    return DeviceAttributes(cuda, architectures, roots)


def pcie_root(sysfs: Path, gpu: Gpu) -> str:
    """Return the first part of its path, `/sys/devices/pci0000:80/…`; empty if it has none."""
    domain, _, rest = gpu.bus_id.lower().partition(":")
    path = (sysfs / "bus/pci/devices" / f"{domain[-4:]}:{rest}").resolve()
    return next(
        (part for part in path.parts if re.fullmatch(r"pci[0-9a-f]{4}:[0-9a-f]{2}", part)), ""
    )


def _of_driver(topology: Topology) -> tuple[str, dict[GpuUUID, str]]:
    cuda = loaded_driver().cuda
    names = {}
    with driver():
        for gpu in topology.gpus:
            with suppress(pynvml.NVMLError):
                device = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid.encode())
                names[gpu.uuid] = ARCHITECTURES.get(pynvml.nvmlDeviceGetArchitecture(device), "")
    return cuda, {uuid: name for uuid, name in names.items() if name}


@dataclass(frozen=True, slots=True)
class LoadedDriver:
    """version: `555.58.02`, the kernel module's. cuda: `12.5`, the newest that it can run."""

    version: str
    cuda: str


def loaded_driver() -> LoadedDriver:
    """Raises NvmlError."""
    with driver():
        cuda = int(ask(pynvml.nvmlSystemGetCudaDriverVersion, "asking for CUDA's version"))
        return LoadedDriver(
            version=text(ask(pynvml.nvmlSystemGetDriverVersion, "asking for the driver's version")),
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}",
        )


async def cuda_version(nvml: NvmlService, seconds: float = ANSWER_SECONDS) -> str:
    """Return the newest CUDA that the driver knows, `12.5`; empty where NVML does not say in
    time."""
    try:
        return (await nvml.ask(loaded_driver, seconds)).cuda
    except NvmlError:
        return ""

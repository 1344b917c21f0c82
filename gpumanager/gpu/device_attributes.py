"""What else a node's GPUs are, for whoever chooses among them: generation, PCIe root, CUDA."""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import pynvml

from gpumanager.gpu.driver_version import loaded_driver
from gpumanager.gpu.nvml import SYSFS, NvmlError, driver
from gpumanager.gpu.nvml_service import ANSWER_SECONDS, NvmlService
from gpumanager.gpu.values import Gpu, GpuUUID, Topology

ARCHITECTURES: Final = {
    value: name.removeprefix("NVML_DEVICE_ARCH_").title()
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_DEVICE_ARCH_") and value != pynvml.NVML_DEVICE_ARCH_UNKNOWN
}
"""NVML's numbers: 7 is `Ampere`."""
_ROOT: Final = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


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
    return next((part for part in path.parts if _ROOT.fullmatch(part)), "")


def _of_driver(topology: Topology) -> tuple[str, dict[GpuUUID, str]]:
    cuda = loaded_driver().cuda
    names = {}
    with driver():
        for gpu in topology.gpus:
            with suppress(pynvml.NVMLError):
                device = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid.encode())
                names[gpu.uuid] = ARCHITECTURES.get(pynvml.nvmlDeviceGetArchitecture(device), "")
    return cuda, {uuid: name for uuid, name in names.items() if name}

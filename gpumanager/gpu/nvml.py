"""The GPUs of this machine, as NVML tells them.

`DriverNvml` is the little we ask of the library; `driver()` opens it. Topology is a matter of
degree: a virtual machine, or a driver that answers "not supported", still has GPUs that can be
shared, so whatever is not known of a pair becomes the loosest bond. No driver at all is an error,
and says what to do about it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pynvml

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.kernel_modules import kernel_file
from gpumanager.gpu.nvml_library import LIBRARY, User
from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, Topology, topology
from gpumanager.units import GIB, MIB, Bytes

log = logging.getLogger(__name__)

SYSFS: Final = Path("/sys")
MEMINFO: Final = Path("/proc/meminfo")
NVIDIA_VENDOR: Final = "0x10de"

RESERVED_PART: Final = 32
LEAST_RESERVED: Final = Bytes(256 * MIB)
MOST_RESERVED: Final = Bytes(2 * GIB)
"""What is kept of a GPU whose driver does not say what it reserves: this part of its memory, within
these bounds."""

_LEVELS: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: Level.BOARD,
    pynvml.NVML_TOPOLOGY_SINGLE: Level.PIX,
    pynvml.NVML_TOPOLOGY_MULTIPLE: Level.PXB,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: Level.PHB,
    pynvml.NVML_TOPOLOGY_NODE: Level.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: Level.SYS,
}

_ADVICE: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 is not found: install the NVIDIA driver, "
        "or put its libraries on the library path of this container"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the NVIDIA kernel module is not loaded: load it with `modprobe nvidia`, "
        "or give this container /dev/nvidiactl"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the driver's libraries and its kernel module have different versions: "
        "reboot, or reload the kernel module, to finish the driver's update"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "no permission: run as a user who may open /dev/nvidiactl and /dev/nvidia*"
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: (
        "the GPU has fallen off the bus: look for Xid 79 in the kernel's log; it needs a reset"
    ),
}

SPLIT: Final = "it is split into instances (MIG), which are not given to containers here"

T = TypeVar("T")


class NvmlError(GpuManagerError):
    """NVML cannot be asked: no driver, no permission, half an update."""


@dataclass(frozen=True, slots=True)
class NvLinks:
    """The active NVLinks of one GPU.

    peers: how many end at each bus id. switch: how many end at NVSwitches, which join all GPUs
    that have such links.
    """

    peers: Counter[str] = field(default_factory=Counter)
    switch: int = 0


def _full_bus_id(bus_id: str) -> str:
    """Return one spelling for `0000:07:00.0` and `00000000:07:00.0`."""
    domain, _, rest = bus_id.upper().partition(":")
    return f"{domain:0>8}:{rest}"


@dataclass(frozen=True, slots=True)
class DriverNvml:
    """NVML through nvidia-ml-py. Open while `driver()` is; raises NvmlError where it cannot answer.

    reserved: of each GPU, that is never granted to anybody; None: what the driver keeps.
    """

    sysfs: Path = SYSFS
    reserved: Bytes | None = None

    def count(self) -> int:
        return int(ask(pynvml.nvmlDeviceGetCount, "counting the GPUs"))

    def gpu(self, index: int) -> Gpu:
        return ask(partial(self._gpu, index), f"asking for GPU {index}")

    def has_own_memory(self, index: int) -> bool:
        """Return whether it has memory that is not the machine's."""
        handle = _handle(index)
        return ask(partial(own_memory, handle), f"asking for GPU {index}") is not None

    def level(self, a: int, b: int) -> Level | None:
        """Return where the PCIe paths of two meet; None if the driver does not report it."""
        ancestor = partial(pynvml.nvmlDeviceGetTopologyCommonAncestor, _handle(a), _handle(b))
        found = if_supported(ancestor, None)
        return None if found is None else _LEVELS.get(found)

    def nvlinks(self, index: int) -> NvLinks:
        """Return the active NVLinks of one; none if the driver does not report them."""
        handle, peers, switch = _handle(index), Counter[str](), 0
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
            if not if_supported(partial(pynvml.nvmlDeviceGetNvLinkState, handle, link), 0):
                continue
            kind = if_supported(  # old drivers have none
                partial(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link),
                pynvml.NVML_NVLINK_DEVICE_TYPE_UNKNOWN,
            )
            remote = partial(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
            if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switch += 1
            elif kind != pynvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU and (
                far_end := if_supported(remote, None)
            ):
                peers[_full_bus_id(text(far_end.busId))] += 1
        return NvLinks(peers, switch)

    def _gpu(self, index: int) -> Gpu:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        if is_split(handle):
            raise NvmlError(SPLIT)
        bus_id = text(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        total = own_memory(handle)
        if total is None:
            total = machine_memory(self.sysfs.parent)
        kept = reserved_by_driver(handle, total) if self.reserved is None else self.reserved
        node = _sysfs_numa_node(self.sysfs, bus_id)
        if node is None:
            # Second, since where GPU memory is a NUMA node of its own NVML names that.
            node = if_supported(partial(pynvml.nvmlDeviceGetNumaNodeId, handle), None)
        return Gpu(
            index=index,
            minor=int(pynvml.nvmlDeviceGetMinorNumber(handle)),
            uuid=uuid_of(handle),
            bus_id=bus_id,
            model=text(pynvml.nvmlDeviceGetName(handle)),
            memory=Bytes(max(0, total - kept)),
            numa_node=None if node is None or node < 0 else int(node),
        )


def discover(nvml: DriverNvml) -> Topology:
    """Return all GPUs that answer, and their bonds; raises NvmlError where none of them does."""
    gpus: list[Gpu] = []
    causes: list[str] = []
    for index in range(nvml.count()):  # one that is lost must not cost the others
        try:
            gpus.append(nvml.gpu(index))
        except NvmlError as error:
            causes.append(f"GPU {index} is left out: {error}")
    if causes and not gpus:
        raise NvmlError("; ".join(causes))
    for cause in causes:
        log.warning("%s", cause)
    links = [nvml.nvlinks(gpu.index) for gpu in gpus]
    bonds: list[list[Bond | None]] = [[None] * len(gpus) for _ in gpus]
    known = False
    for a, first in enumerate(gpus):
        for b, second in enumerate(gpus[:a]):
            level = nvml.level(first.index, second.index)
            known |= level is not None
            direct = min(
                links[a].peers[_full_bus_id(second.bus_id)],
                links[b].peers[_full_bus_id(first.bus_id)],
            )
            nvlinks = direct or min(links[a].switch, links[b].switch)
            bonds[a][b] = bonds[b][a] = Bond(level or Level.SYS, nvlinks)
    if len(gpus) > 1 and not known:
        log.info("this driver reports no GPU topology: all pairs count as %s", Level.SYS.name)
    return topology(gpus, bonds)


def discover_here(sysfs: Path = SYSFS, reserved: Bytes | None = None) -> Topology:
    """Return all GPUs of this machine and their bonds; raises NvmlError. reserved: as of
    DriverNvml."""
    with driver(sysfs, reserved) as nvml:
        return discover(nvml)


@contextmanager
def driver(sysfs: Path = SYSFS, reserved: Bytes | None = None) -> Iterator[DriverNvml]:
    """Yield the NVML of the installed driver, open; raises NvmlError."""
    visitor = User()
    ask(partial(LIBRARY.open, visitor), "opening NVML")
    try:
        yield DriverNvml(sysfs, reserved)
    finally:
        LIBRARY.close(visitor)


def _sysfs_numa_node(sysfs: Path, bus_id: str) -> int | None:
    """Return the kernel's answer; None for -1, and for a device that is not NVIDIA's."""
    domain, _, rest = bus_id.lower().partition(":")
    device = sysfs / "bus/pci/devices" / f"{domain[-4:]}:{rest}"
    try:
        if (device / "vendor").read_text().strip() != NVIDIA_VENDOR:
            return None
        node = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _handle(index: int) -> object:
    return ask(partial(pynvml.nvmlDeviceGetHandleByIndex, index), f"asking for GPU {index}")


def own_memory(handle: object) -> int | None:
    """Return the total of a GPU; None where NVML supports no such figure, since GPU and processor
    share the machine's memory. Example: GB10. Raises pynvml.NVMLError for one that does not
    answer."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError_NotSupported:
        return None


def machine_memory(root: Path) -> int:
    """Return the memory of the machine with this root. Raises NvmlError."""
    try:
        text = kernel_file(root, MEMINFO).read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if "MemTotal:" in line) << 10
    except (OSError, ValueError, IndexError, StopIteration) as error:
        raise NvmlError(f"NVML has no memory figure of it, nor has {MEMINFO}: {error}") from error


def reserved_by_driver(handle: object, total: int) -> int:
    """Return what the driver and the firmware keep. Drivers report it since 510."""
    asked = partial(pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
    told = if_supported(asked, None)
    if told is not None:
        return int(told.reserved)
    return min(MOST_RESERVED, max(LEAST_RESERVED, total // RESERVED_PART))


def uuid_of(handle: object) -> GpuUUID:
    return GpuUUID(text(pynvml.nvmlDeviceGetUUID(handle)))


def is_split(device: object) -> bool:
    """Return whether programs see the instances of a GPU (MIG), and not the GPU itself."""
    enabled, _pending = if_supported(partial(pynvml.nvmlDeviceGetMigMode, device), (0, 0))
    return bool(enabled)


def text(answer: str | bytes) -> str:
    return answer.decode() if isinstance(answer, bytes) else answer


def ask(question: Callable[[], T], doing: str) -> T:
    try:
        return question()
    except pynvml.NVMLError as error:
        advice = _ADVICE.get(error.value, f"NVML answered: {error}")
        raise NvmlError(f"{doing}: {advice}") from error


def if_supported(question: Callable[[], T], otherwise: T) -> T:
    """Return the answer, or `otherwise` where this driver, GPU or machine has none."""
    try:
        return question()
    except pynvml.NVMLError:
        return otherwise

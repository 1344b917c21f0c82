"""Device IDs that name capacity: which GPU, and which of its slots.

    1f3a9c02-c-17    core 17 of the GPU whose UUID begins with 1f3a9c02
    1f3a9c02-m-63    memory block 63 of it

A UUID does not change when a card gets another index or minor, so an ID means the same after a
reboot. Where the first eight digits of two GPUs agree, all IDs take more of them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.names import VCORE, VMEMORY
from gpumanager.units import CORES_PER_GPU, blocks

LETTERS: Final[Mapping[str, str]] = {VCORE: "c", VMEMORY: "m"}
PREFIX: Final = 8
LONGEST_ID: Final = 63
"""Characters; what the kubelet's API allows in an ID."""
ORIGINAL: Final = "tencent.com/"
"""How gpu-manager's IDs begin, which name no GPU."""


class UnknownDeviceID(GpuManagerError):
    """An ID that names nothing here: another plugin's, or of a GPU that is gone."""

    def __init__(self, device_id: str) -> None:
        super().__init__(f"device ID {device_id!r} is not one of this node's")


class IndistinctGPUs(GpuManagerError):
    """Two GPUs have one UUID; no ID could tell them apart."""

    def __init__(self, uuid: GpuUUID) -> None:
        super().__init__(f"two GPUs have the UUID {uuid}: check the driver's list of GPUs")


class Device(NamedTuple):
    """One device as the kubelet is told of it: a tuple, for there are thousands in each list."""

    device_id: str
    healthy: bool
    numa_node: int | None


class DeviceIDs:
    """The IDs of a topology: all of them, and the GPU that each names. A node has thousands."""

    def __init__(self, topology: Topology) -> None:
        self._gpus: dict[str, dict[str, Gpu]] = {VCORE: {}, VMEMORY: {}}
        """By resource and ID, GPU by GPU and slot by slot."""
        self._memories = set[str]()
        for gpu, prefix in zip(topology.gpus, prefixes(topology.gpus), strict=True):
            for resource, size in ((VCORE, CORES_PER_GPU), (VMEMORY, blocks(gpu.memory))):
                beginning = f"{prefix}-{LETTERS[resource]}-"
                ids = (f"{beginning}{index}" for index in range(size))
                self._gpus[resource].update(dict.fromkeys(ids, gpu))
            self._memories.add(f"{prefix}-{LETTERS[VMEMORY]}")
        self._all = self._gpus[VCORE] | self._gpus[VMEMORY]

    def __contains__(self, device_id: str) -> bool:
        return device_id in self._all

    def gpu_of(self, device_id: str) -> Gpu:
        """Return the GPU that an ID names. Raises UnknownDeviceID."""
        gpu = self._all.get(device_id)
        if gpu is None:
            raise UnknownDeviceID(device_id)
        return gpu

    def of(self, resource: str) -> tuple[tuple[str, Gpu], ...]:
        """Return every ID of one resource and its GPU, GPU by GPU."""
        return tuple(self._gpus[resource].items())

    def on(self, gpus: Iterable[Gpu]) -> frozenset[str]:
        """Return every ID of these GPUs, of both resources."""
        uuids = {gpu.uuid for gpu in gpus}
        return frozenset(i for i, gpu in self._all.items() if gpu.uuid in uuids)

    def was_here(self, device_id: str) -> bool:
        """Return whether it is a block that its GPU had once, when more of its memory was
        granted."""
        if device_id in self._all:
            return False
        prefix, _, index = device_id.rpartition("-")
        return prefix in self._memories and index.isdecimal()

    def ordered(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Return the known ones of `ids`, each once, GPU by GPU and slot by slot.

        They are our texts, not the ones given: those of messages need not be kept.
        """
        wanted = frozenset(ids)
        return tuple(i for i in self._all if i in wanted)


def prefixes(gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    """Return the shortest beginnings of equal length that tell the UUIDs apart; at least 8
    digits."""
    digits = [gpu.uuid.removeprefix("GPU-").replace("-", "").lower() for gpu in gpus]
    for length in range(PREFIX, LONGEST_ID - len("-m-999999")):
        found = tuple(text[:length] for text in digits)
        if len(set(found)) == len(found):
            return found
    uuids = [gpu.uuid for gpu in gpus]
    raise IndistinctGPUs(next(uuid for uuid in uuids if uuids.count(uuid) > 1))

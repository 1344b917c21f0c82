"""What a GPU is, and how two of them are connected. Values only.

A pair of GPUs has one `Bond`: the PCIe level at which their paths meet, as `nvidia-smi topo -m`
names it, and the number of NVLinks between them, if any.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NewType

from gpumanager.units import Bytes

GpuUUID = NewType("GpuUUID", str)
"""As NVML writes it: `GPU-` and 36 characters."""


def bare(gpu: GpuUUID) -> GpuUUID:
    """Without its kind: an instance of a GPU is `MIG-…` to NVML and `GPU-…` in our files."""
    return GpuUUID(gpu.partition("-")[2])


class Level(IntEnum):
    """Where two GPUs meet; the value is the quality of the pair (go-gpuallocator's scores)."""

    SYS = 10  # across the sockets
    NODE = 20  # one NUMA node, several host bridges
    PHB = 30  # one host bridge
    PXB = 40  # several PCIe switches
    PIX = 50  # one PCIe switch
    BOARD = 60  # one board


NVLINK_QUALITY = 100


@dataclass(frozen=True, slots=True, order=False)
class Bond:
    """How two GPUs are connected."""

    level: Level
    nvlinks: int = 0

    @property
    def quality(self) -> int:
        """100 per NVLink; without NVLink the quality of the PCIe level."""
        return self.nvlinks * NVLINK_QUALITY or int(self.level)

    def __str__(self) -> str:
        return f"NV{self.nvlinks}" if self.nvlinks else self.level.name


@dataclass(frozen=True, slots=True)
class Gpu:
    """One physical GPU.

    index: NVML's, which orders by bus id. minor: N of `/dev/nvidia<N>`; may differ from index.
    memory: what can be granted of it: without what the driver keeps for itself. numa_node: None
    where the machine does not say.
    """

    index: int
    minor: int
    uuid: GpuUUID
    bus_id: str
    model: str
    memory: Bytes
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """The GPUs of a machine, ordered by index, and the bond of every pair.

    bonds: square, symmetric, `bonds[a][b]` for positions a and b in `gpus`; None on the diagonal.
    """

    gpus: tuple[Gpu, ...]
    bonds: tuple[tuple[Bond | None, ...], ...]

    def bond(self, a: int, b: int) -> Bond:
        """Return the bond of two different GPUs, by position."""
        found = self.bonds[a][b]
        if found is None:
            raise ValueError(f"GPU {a} has no bond with itself")
        return found

    def connected(
        self, positions: Iterable[int], joined: Callable[[Bond], bool]
    ) -> tuple[tuple[int, ...], ...]:
        """Part these GPUs, by position, into those that such bonds join, over others of them."""
        found: list[tuple[int, ...]] = []
        left = sorted(positions)
        while left:
            group = [left.pop(0)]
            for member in group:  # grows while it is walked
                group += [other for other in left if joined(self.bond(member, other))]
                left = [other for other in left if other not in group]
            found.append(tuple(sorted(group)))
        return tuple(found)

    def by_uuid(self, uuid: GpuUUID) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


def topology(gpus: Sequence[Gpu], bonds: Sequence[Sequence[Bond | None]]) -> Topology:
    """Return a Topology from any sequences; raises ValueError where they do not fit together."""
    size = len(gpus)
    if len(bonds) != size or any(len(row) != size for row in bonds):
        raise ValueError(f"{size} GPUs need a {size} by {size} table of bonds")
    for a in range(size):
        for b in range(size):
            if (a == b) != (bonds[a][b] is None) or bonds[a][b] != bonds[b][a]:
                raise ValueError(f"the bond of GPU {a} and GPU {b} is missing or one-sided")
    return Topology(tuple(gpus), tuple(tuple(row) for row in bonds))

"""How near to each other the GPUs of one container are, in ways that a pod may ask for.

`topology` is about NVLink, `numa` about the memory of the host. One GPU is near to itself.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Final

from gpumanager.gpu.values import Topology

Group = frozenset[int]
"""Positions in the topology."""

SLOWEST_NVLINK: Final = 0.7
MOST_NVLINKS: Final = 18


@dataclass(frozen=True, slots=True)
class Nearness:
    """groups: of these GPUs, those that are near. of: from 0 to 1, how near some GPUs are.

    lacking: what a node that has none lacks.
    """

    name: str
    groups: Callable[[Topology, Collection[int]], Sequence[Group]]
    of: Callable[[Topology, Sequence[int]], float]
    says: str
    lacking: str

    def is_near(self, topology: Topology, positions: Sequence[int]) -> bool:
        """Return whether these GPUs are one group, as a strict pod insists on."""
        return len(self.groups(topology, positions)) <= 1


def islands(topology: Topology, positions: Collection[int]) -> Sequence[Group]:
    """Return groups of GPUs that reach each other by NVLink, over others of these."""
    return [frozenset(one) for one in topology.connected(positions, lambda bond: bond.nvlinks > 0)]


def numa_nodes(topology: Topology, positions: Collection[int]) -> Sequence[Group]:
    """Return the GPUs by NUMA node; where that is unknown, all are on one."""
    found: dict[int | None, set[int]] = {}
    for place in sorted(positions):
        found.setdefault(topology.gpus[place].numa_node, set()).add(place)
    return [frozenset(group) for group in found.values()]


def linked(topology: Topology, positions: Sequence[int]) -> float:
    """Return the mean over all pairs.

    NVLink counts by the number of links from 0.7 to 1; a pair without, from 0.1 across the sockets
    to 0.6 on one board.
    """
    pairs = list[float]()
    for bond in (topology.bond(a, b) for a, b in combinations(positions, 2)):
        part = min(bond.nvlinks, MOST_NVLINKS) / MOST_NVLINKS
        by_nvlink = SLOWEST_NVLINK + (1 - SLOWEST_NVLINK) * part
        pairs.append(by_nvlink if bond.nvlinks else bond.quality / 100)
    return sum(pairs) / len(pairs) if pairs else 1.0


NEARNESS: Final = MappingProxyType(
    {
        one.name: one
        for one in (
            Nearness(
                "topology", islands, linked,
                "GPUs of one container that NVLink connects",
                "node(s) didn't have enough free GPUs connected by NVLink",
            ),
            Nearness(
                "numa", numa_nodes, lambda node, gpus: 1 / max(1, len(numa_nodes(node, gpus))),
                "GPUs of one container on one NUMA node",
                "node(s) didn't have enough free GPUs on one NUMA node",
            ),
        )
    }
)  # fmt: skip

"""How near to each other the GPUs of one container are, in ways that somebody may ask for.

`topology` is about NVLink, `numa` about the memory of the host. One GPU is near to itself.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType
from typing import Final

from gpumanager.gpu.values import Bond, Topology

Group = frozenset[int]
"""Positions in the topology."""

SLOWEST_NVLINK: Final = 0.7
MOST_NVLINKS: Final = 18


@dataclass(frozen=True, slots=True)
class Nearness:
    """groups: of these GPUs, those that are near. of: from 0 to 1, how near some GPUs are.

    is_near: what a strict pod insists on. lacking: what a node that has none lacks.
    """

    name: str
    groups: Callable[[Topology, Collection[int]], Sequence[Group]]
    of: Callable[[Topology, Sequence[int]], float]
    is_near: Callable[[Topology, Sequence[int]], bool]
    says: str
    lacking: str


def islands(topology: Topology, positions: Collection[int]) -> Sequence[Group]:
    """GPUs that reach each other by NVLink, over others of these."""
    left, found = sorted(positions), []
    while left:
        island, edge = {left[0]}, [left[0]]
        while edge:
            here = edge.pop()
            near = [one for one in left if one not in island and topology.bond(here, one).nvlinks]
            island.update(near)
            edge.extend(near)
        left = [one for one in left if one not in island]
        found.append(frozenset(island))
    return found


def numa_nodes(topology: Topology, positions: Collection[int]) -> Sequence[Group]:
    """By the NUMA node; where that is unknown, all are on one."""
    found: dict[int | None, set[int]] = {}
    for place in sorted(positions):
        found.setdefault(topology.gpus[place].numa_node, set()).add(place)
    return [frozenset(group) for group in found.values()]


def linked(topology: Topology, positions: Sequence[int]) -> float:
    """The mean over all pairs."""
    pairs = [_near(topology.bond(a, b)) for a, b in combinations(positions, 2)]
    return sum(pairs) / len(pairs) if pairs else 1.0


def _near(bond: Bond) -> float:
    """NVLink by their number from 0.7 to 1; without, 0.1 across the sockets to 0.6 on one board."""
    if bond.nvlinks:
        part = min(bond.nvlinks, MOST_NVLINKS) / MOST_NVLINKS
        return SLOWEST_NVLINK + (1 - SLOWEST_NVLINK) * part
    return bond.quality / 100


def _one_island(topology: Topology, positions: Sequence[int]) -> bool:
    return len(islands(topology, positions)) <= 1


def _one_node(topology: Topology, positions: Sequence[int]) -> bool:
    return len(numa_nodes(topology, positions)) <= 1


def _few_nodes(topology: Topology, positions: Sequence[int]) -> float:
    return 1 / max(1, len(numa_nodes(topology, positions)))


NEARNESS: Final = MappingProxyType(
    {
        one.name: one
        for one in (
            Nearness(
                "topology", islands, linked, _one_island,
                "GPUs of one container that NVLink connects",
                "node(s) didn't have enough free GPUs connected by NVLink",
            ),
            Nearness(
                "numa", numa_nodes, _few_nodes, _one_node,
                "GPUs of one container on one NUMA node",
                "node(s) didn't have enough free GPUs on one NUMA node",
            ),
        )
    }
)  # fmt: skip

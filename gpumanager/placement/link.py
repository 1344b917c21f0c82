"""Several whole GPUs: the best linked set.

Among all sets of free GPUs that are large enough: the largest total quality of their bonds; then
the fewest NUMA nodes; then the least breakage, which is the descending list of qualities from the
members to the free GPUs that remain, smallest first; then the lowest indices.

Exact for up to 16 candidates. Beyond that (no PCIe machine of today) the same objective decides
between the sets that a greedy growth from every kind of GPU reaches.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Final

from gpumanager.gpu.values import Bond, Topology
from gpumanager.placement.link_search import Candidates, best_set, candidates_of, good_set
from gpumanager.placement.values import Evaluator, FreeGpus, GpuChoice, Refusal, Request
from gpumanager.placement.whole import free_positions, large_enough, refuse_whole
from gpumanager.units import count_of

EXACT_UP_TO: Final = 16
"""Candidates; 16 mean at most 12,870 sets."""


def link(topology: Topology, free_gpus: FreeGpus, request: Request) -> GpuChoice | Refusal:
    free = free_positions(topology, free_gpus)
    fitting = large_enough(topology, free, request)
    if len(fitting) < request.whole_gpus:
        return refuse_whole(topology, len(fitting), request)
    chosen = _choose(candidates_of(topology, free, fitting), request.whole_gpus)
    gpus = tuple(topology.gpus[place] for place in chosen)
    return GpuChoice(request, Evaluator.LINK, gpus, _why(topology, chosen))


def _choose(candidates: Candidates, size: int) -> tuple[int, ...]:
    search = best_set if len(candidates.positions) <= EXACT_UP_TO else good_set
    return tuple(candidates.positions[member] for member in search(candidates, size))


def _why(topology: Topology, chosen: Sequence[int]) -> str:
    bonds = [topology.bond(a, b) for a, b in combinations(chosen, 2)]
    return f"best linked set: {_links(bonds)}, {_nodes(topology, chosen)}"


def _links(bonds: Sequence[Bond]) -> str:
    if len(bonds) == 1:
        return str(bonds[0])
    names = Counter(str(bond) for bond in sorted(bonds, key=lambda bond: -bond.quality))
    if len(names) == 1:
        return f"{bonds[0]} between every pair"
    return ", ".join(f"{name} in {count_of(count, 'pair')}" for name, count in names.items())


def _nodes(topology: Topology, chosen: Sequence[int]) -> str:
    nodes = {topology.gpus[place].numa_node for place in chosen}
    if nodes == {None}:
        return "NUMA nodes unknown"
    return "one NUMA node" if len(nodes) == 1 else f"{len(nodes)} NUMA nodes"

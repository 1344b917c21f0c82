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

from gpumanager.gpu.values import Topology
from gpumanager.placement.link_search import best_set, candidates_of, good_set
from gpumanager.placement.values import FreeGpus, GpuChoice, Refusal, Request
from gpumanager.placement.whole import free_positions, large_enough, refuse_whole
from gpumanager.units import count_of

EXACT_UP_TO: Final = 16
"""Candidates; 16 mean at most 12,870 sets."""


def link(topology: Topology, free_gpus: FreeGpus, request: Request) -> GpuChoice | Refusal:
    free = free_positions(topology, free_gpus)
    fitting = large_enough(topology, free, request)
    if len(fitting) < request.whole_gpus:
        return refuse_whole(topology, len(fitting), request)
    candidates = candidates_of(topology, free, fitting)
    search = best_set if len(fitting) <= EXACT_UP_TO else good_set
    chosen = [fitting[member] for member in search(candidates, request.whole_gpus)]
    gpus = tuple(topology.gpus[place] for place in chosen)
    return GpuChoice(request, gpus, _why(topology, chosen))


def _why(topology: Topology, chosen: Sequence[int]) -> str:
    bonds = [topology.bond(a, b) for a, b in combinations(chosen, 2)]
    names = Counter(str(bond) for bond in sorted(bonds, key=lambda bond: -bond.quality))
    if len(bonds) == 1:
        links = str(bonds[0])
    elif len(names) == 1:
        links = f"{bonds[0]} between every pair"
    else:
        links = ", ".join(f"{name} in {count_of(count, 'pair')}" for name, count in names.items())
    nodes = {topology.gpus[place].numa_node for place in chosen}
    spread = "one NUMA node" if len(nodes) == 1 else f"{len(nodes)} NUMA nodes"
    return f"best linked set: {links}, {'NUMA nodes unknown' if nodes == {None} else spread}"

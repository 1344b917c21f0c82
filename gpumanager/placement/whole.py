"""Whole GPUs: which are free, how to say no, and the rule for one of them.

Free means untouched: a shared GPU is never given whole. `vcuda-memory` is a minimum that every
card must have; it chooses cards, it does not limit them.

One whole GPU is the one whose loss breaks the loosest bonds. Of every free GPU, the qualities of
its bonds to the other free GPUs in descending order; the smallest such list wins, then the lowest
index. So an orphan goes before a member of a free pair. gpu-manager descends its tree greedily
instead and breaks pairs needlessly; this differs on purpose.
"""

from collections.abc import Iterable, Sequence

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.placement.values import Evaluator, FreeGpus, GpuChoice, Reason, Refusal, Request
from gpumanager.units import blocks, count_of


def fragment(topology: Topology, free_gpus: FreeGpus, request: Request) -> GpuChoice | Refusal:
    free = free_positions(topology, free_gpus)
    candidates = large_enough(topology, free, request)
    if not candidates:
        return refuse_whole(topology, len(candidates), request)
    chosen = min(candidates, key=lambda place: _broken(topology, free, place))
    why = _why(topology, free, chosen)
    return GpuChoice(request, Evaluator.FRAGMENT, (topology.gpus[chosen],), why)


def _broken(topology: Topology, free: Sequence[int], place: int) -> list[int]:
    """Qualities of the bonds that `place` takes from the free GPUs, best first."""
    bonds = (topology.bond(place, other) for other in free if other != place)
    return sorted((bond.quality for bond in bonds), reverse=True)


def _why(topology: Topology, free: Sequence[int], place: int) -> str:
    bonds = [topology.bond(place, other) for other in free if other != place]
    if not bonds:
        return "the only free GPU"
    best = max(bonds, key=lambda bond: bond.quality)
    return f"keeps linked GPUs together: its best link to another free GPU is {best}"


def free_positions(topology: Topology, free_gpus: FreeGpus) -> list[int]:
    """Positions of the untouched GPUs, ascending."""
    return [place for place, gpu in enumerate(topology.gpus) if free_gpus.of(gpu).whole]


def large_enough(topology: Topology, positions: Iterable[int], request: Request) -> list[int]:
    """Those whose card has the memory asked for."""
    return [place for place in positions if _has_memory(topology.gpus[place], request)]


def refuse_whole(topology: Topology, candidates: int, request: Request) -> Refusal:
    """`candidates`: how many GPUs are free and large enough."""
    suitable = len(large_enough(topology, range(len(topology.gpus)), request))
    kind = f" with {count_of(request.blocks, 'block')}" if request.blocks else ""
    asked = f"{count_of(request.whole_gpus, 'whole GPU')}{kind} asked"
    if suitable < request.whole_gpus:
        return Refusal(request, Reason.TOO_LARGE, f"{asked}; this machine has {suitable}")
    return Refusal(request, Reason.NO_FREE_GPU, f"{asked}; {candidates} of {suitable} are free")


def _has_memory(gpu: Gpu, request: Request) -> bool:
    return blocks(gpu.memory) >= request.blocks

"""One whole GPU: the one whose loss breaks the loosest bonds.

Of every free GPU, the qualities of its bonds to the other free GPUs in descending order; the
smallest such list wins, then the lowest index. So an orphan goes before a member of a free pair.
gpu-manager descends its tree greedily instead and breaks pairs needlessly; this differs on purpose.
"""

from collections.abc import Sequence

from gpumanager.gpu.values import Topology
from gpumanager.placement.values import Books, Evaluator, Grant, Refusal, Request
from gpumanager.placement.whole import free_positions, large_enough, refuse_whole


def fragment(topology: Topology, books: Books, request: Request) -> Grant | Refusal:
    free = free_positions(topology, books)
    candidates = large_enough(topology, free, request)
    if not candidates:
        return refuse_whole(topology, len(candidates), request)
    chosen = min(candidates, key=lambda place: _broken(topology, free, place))
    why = _why(topology, free, chosen)
    return Grant(request, Evaluator.FRAGMENT, (topology.gpus[chosen],), why)


def _broken(topology: Topology, free: Sequence[int], place: int) -> list[int]:
    """Qualities of the bonds that `place` takes from the free GPUs, best first."""
    bonds = (topology.bond(place, other) for other in free if other != place)
    return sorted((bond.quality for bond in bonds), reverse=True)


def _why(topology: Topology, free: Sequence[int], place: int) -> str:
    bonds = [topology.bond(place, other) for other in free if other != place]
    if not bonds:
        return "the only free GPU"
    best = max(bonds, key=lambda bond: bond.quality)
    return f"breaks the loosest bonds: best link to another free GPU is {best}"

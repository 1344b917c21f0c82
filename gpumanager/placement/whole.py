"""Whole GPUs: which are free, how to refuse, the rule for one of them, and the order of offers.

Free means untouched: a shared GPU is never given whole. `vcuda-memory` is a minimum that every
card must have; it chooses cards, it does not limit them.

One whole GPU is the one whose loss breaks the loosest bonds. Of every free GPU, the qualities of
its bonds to the other free GPUs in descending order; the smallest such list wins, then the lowest
index. So an orphan goes before a member of a free pair. gpu-manager descends its tree greedily
instead and breaks pairs needlessly; this differs on purpose.
"""

from collections.abc import Iterable

from gpumanager.gpu.values import Bond, Gpu, Topology
from gpumanager.placement.values import FreeGpus, GpuChoice, Reason, Refusal, Request
from gpumanager.units import CORES_PER_GPU, blocks, count_of


def fragment(topology: Topology, free_gpus: FreeGpus, request: Request) -> GpuChoice | Refusal:
    free = free_positions(topology, free_gpus)
    candidates = large_enough(topology, free, request)
    if not candidates:
        return refuse_whole(topology, len(candidates), request)

    def broken(place: int) -> list[Bond]:
        """Return the bonds that `place` takes from the free GPUs, best first."""
        bonds = [topology.bond(place, other) for other in free if other != place]
        return sorted(bonds, key=lambda bond: bond.quality, reverse=True)

    chosen = min(candidates, key=lambda place: [bond.quality for bond in broken(place)])
    why = "the only free GPU"
    if bonds := broken(chosen):
        why = f"keeps linked GPUs together: its best link to another free GPU is {bonds[0]}"
    return GpuChoice(request, (topology.gpus[chosen],), why)


def free_positions(topology: Topology, free_gpus: FreeGpus) -> list[int]:
    """Return the positions of the untouched GPUs, ascending."""
    return [place for place, gpu in enumerate(topology.gpus) if free_gpus.of(gpu).whole]


def large_enough(topology: Topology, positions: Iterable[int], request: Request) -> list[int]:
    """Return the positions of GPUs that have the memory asked for."""
    return [at for at in positions if blocks(topology.gpus[at].memory) >= request.blocks]


def refuse_whole(topology: Topology, candidates: int, request: Request) -> Refusal:
    """Refuse. candidates: how many GPUs are free and large enough."""
    suitable = len(large_enough(topology, range(len(topology.gpus)), request))
    kind = f" with {count_of(request.blocks, 'block')}" if request.blocks else ""
    asked = f"{count_of(request.whole_gpus, 'whole GPU')}{kind} asked"
    if suitable < request.whole_gpus:
        return Refusal(request, Reason.TOO_LARGE, f"{asked}; this machine has {suitable}")
    return Refusal(request, Reason.NO_FREE_GPU, f"{asked}; {candidates} of {suitable} are free")


def offer_order(topology: Topology, free: FreeGpus) -> tuple[Gpu, ...]:
    """Return all GPUs of `topology`, in the order in which a ResourceSlice offers them.

    kube-scheduler takes the first devices that fit, so the order is all that placement can decide
    there. GPUs in use come first, the fullest before the others, so that shares fill up what is
    begun; then the free ones, each the one whose loss breaks the loosest bonds to those left. GPUs
    that cannot be had come last.
    """
    begun = [gpu for gpu in topology.gpus if free.of(gpu).cores and not free.of(gpu).whole]
    begun.sort(key=lambda gpu: (free.of(gpu).cores, free.of(gpu).blocks, gpu.index))
    untouched, left = list[Gpu](), free
    while isinstance(chosen := fragment(topology, left, Request(CORES_PER_GPU)), GpuChoice):
        untouched += chosen.gpus
        left = left.take(chosen)
    closed = [gpu for gpu in topology.gpus if gpu not in begun and gpu not in untouched]
    return (*begun, *untouched, *closed)

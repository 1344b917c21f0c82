"""What the rules for whole GPUs have in common: which GPUs are free, and how to say no.

Free means untouched: a shared GPU is never given whole. `vcuda-memory` is a minimum that every
card must have; it chooses cards, it does not limit them.
"""

from collections.abc import Iterable

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.placement.values import Books, Reason, Refusal, Request
from gpumanager.units import blocks


def free_positions(topology: Topology, books: Books) -> list[int]:
    """Positions of the untouched GPUs, ascending."""
    return [place for place, gpu in enumerate(topology.gpus) if books.of(gpu).untouched]


def large_enough(topology: Topology, positions: Iterable[int], request: Request) -> list[int]:
    """Those whose card has the memory asked for."""
    return [place for place in positions if _has_memory(topology.gpus[place], request)]


def refuse_whole(topology: Topology, candidates: int, request: Request) -> Refusal:
    """`candidates`: how many GPUs are free and large enough."""
    suitable = len(large_enough(topology, range(len(topology.gpus)), request))
    kind = f" with {request.blocks} blocks" if request.blocks else ""
    asked = f"{request.whole_gpus} whole GPUs{kind} asked"
    if request.whole_gpus == 1:
        asked = f"1 whole GPU{kind} asked"
    if suitable < request.whole_gpus:
        return Refusal(request, Reason.TOO_LARGE, f"{asked}; this machine has {suitable}")
    return Refusal(request, Reason.NO_FREE_GPU, f"{asked}; {candidates} of {suitable} are free")


def _has_memory(gpu: Gpu, request: Request) -> bool:
    return blocks(gpu.memory) >= request.blocks

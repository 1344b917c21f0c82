"""A part of one GPU: the GPU that the policy takes of those on which the request fits.

It is not known here which pods are usual, nor what the node has of CPU and memory: a policy that
needs that sees its own assumption, and a node with plenty.
"""

from typing import Final

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.placement.policies import BINPACK, POLICIES
from gpumanager.placement.values import (
    FreeGpus,
    FreeNode,
    GpuChoice,
    PodRequest,
    Reason,
    Refusal,
    Request,
)
from gpumanager.placement.workload_mix import UNKNOWN_MIX
from gpumanager.units import CORES_PER_GPU, blocks, bytes_for_blocks, count_of, mib_for_blocks

PLENTY: Final = 10**9
"""Thousandths of a CPU, and MiB."""


def share(topology: Topology, free: FreeGpus, request: Request, policy: str) -> GpuChoice | Refusal:
    gpus = tuple(free.of(gpu)._replace(memory=blocks(gpu.memory)) for gpu in topology.gpus)
    node = FreeNode("", "", gpus, PLENTY, PLENTY, PLENTY, PLENTY)
    score = POLICIES[policy].score(node, PodRequest((request,)), UNKNOWN_MIX)
    if score is None:
        return _refuse(topology, free, request)
    chosen = topology.gpus[score.gpus[0][0]]
    room, size = free.of(chosen), blocks(chosen.memory)
    rest = f"{room.cores} of {CORES_PER_GPU} cores and {room.blocks} of {size} blocks were free"
    if policy != BINPACK:
        why = f"best by {policy}: {rest}"
    elif room.whole:
        why = "a free GPU, since no GPU in use had room"
    else:
        why = f"fullest GPU that still fits: {rest}"
    return GpuChoice(request, (chosen,), why)


def _refuse(topology: Topology, free: FreeGpus, request: Request) -> Refusal:
    asked = f"{count_of(request.cores, 'core')} and {count_of(request.blocks, 'block')} asked"
    largest = max((blocks(gpu.memory) for gpu in topology.gpus), default=0)
    if request.blocks > largest:
        meant = bytes_for_blocks(request.blocks) or (
            f"the largest GPU has {count_of(largest, 'block')}{mib_for_blocks(request.blocks)}"
        )
        return Refusal(request, Reason.TOO_LARGE, f"{asked}; {meant}")

    def shortfall(gpu: Gpu) -> tuple[bool, int, int]:
        """Missing memory weighs more than missing cores, whose units are finer."""
        blocks_missing = max(0, request.blocks - free.of(gpu).blocks)
        cores_missing = max(0, request.cores - free.of(gpu).cores)
        return bool(blocks_missing and cores_missing), blocks_missing, cores_missing

    nearest = min(topology.gpus, key=shortfall)
    room = free.of(nearest)
    detail = (
        f"{asked}; the nearest, GPU {nearest.index}, "
        f"has {count_of(room.cores, 'core')} and {count_of(room.blocks, 'block')} free"
    )
    return Refusal(request, Reason.NO_FREE_GPU, detail)

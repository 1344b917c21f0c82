"""Choose GPUs for a request.

Pure: values in, values out. Nothing here looks at the clock, the host or the wire, so that the
scheduler extender, the node agent and `plan` reach the same answer. Nor is it known which pods are
usual, nor what the node has of CPU and memory: a policy that needs that for a share sees its own
assumption, and a node with plenty.
"""

from typing import Final

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.placement.link import link
from gpumanager.placement.policies import BINPACK, POLICIES
from gpumanager.placement.values import (
    Evaluator,
    FreeGpus,
    FreeNode,
    GpuChoice,
    PodRequest,
    Reason,
    Refusal,
    Request,
    check,
)
from gpumanager.placement.whole import fragment
from gpumanager.placement.workload_mix import UNKNOWN_MIX
from gpumanager.units import CORES_PER_GPU, blocks, bytes_for_blocks, count_of, mib_for_blocks


def place(
    topology: Topology, free: FreeGpus, request: Request, policy: str = BINPACK
) -> GpuChoice | Refusal:
    """Choose the GPUs for one container. free: of every GPU of `topology`.

    policy: by which name of `policies` a GPU is chosen for a share; among whole GPUs links decide.
    """
    if refusal := check(request):
        return refusal
    match request.evaluator:
        case Evaluator.SHARE:
            return _share(topology, free, request, policy)
        case Evaluator.FRAGMENT:
            return fragment(topology, free, request)
        case Evaluator.LINK:
            return link(topology, free, request)


PLENTY: Final = 10**9
"""Thousandths of a CPU, and MiB."""


def _share(
    topology: Topology, free: FreeGpus, request: Request, policy: str
) -> GpuChoice | Refusal:
    """Take the GPU that the policy takes of those on which the request fits."""
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

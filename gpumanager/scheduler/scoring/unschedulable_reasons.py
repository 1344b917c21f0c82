"""Why a pod does not fit a node, in Kubernetes' own phrases. Pure.

kube-scheduler counts equal phrases: `0/9 nodes are available: 4 Insufficient …, 5 node(s) had …`.
So a phrase has no figures; these are in the detail, which `/explain` shows.
"""

from dataclasses import dataclass
from typing import Final

from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.near import lacking
from gpumanager.placement.values import Reason, Refusal, Request
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.units import CORES_PER_GPU, blocks

UNKNOWN: Final = "node(s) were not known to the GPU scheduler yet"
NO_GPUS: Final = "node(s) had no GPUs"
UNREADABLE: Final = "node(s) had an inventory of GPUs that was not understood"
NO_CORES: Final = f"Insufficient {VCORE}"
NO_MEMORY: Final = f"Insufficient {VMEMORY}"
SCATTERED: Final = f"node(s) had the {VCORE} only on several GPUs"
NO_WHOLE: Final = "node(s) didn't have enough untouched GPUs"
TOO_SMALL: Final = "node(s) didn't have large enough GPUs"
TOO_FEW: Final = "node(s) didn't have enough GPUs"
CLOSED: Final = "node(s) had unhealthy or cordoned GPUs"
NOT_WANTED: Final = "node(s) didn't have the GPUs that the pod selects"

Brief = tuple[str, bool]
"""A phrase, and whether it is final."""


@dataclass(frozen=True, slots=True)
class Unfit:
    """A node that will not do. final: taking pods away there would not help."""

    phrase: str
    detail: str = ""
    final: bool = False


def unfit(node: NodeState, ask: PodShape, refusal: Refusal) -> Unfit:
    """Return why `node` refused."""
    if not node.topology.gpus:
        detail = node.trouble or "its agent has published no inventory"
        return Unfit(_without_gpus(node), detail, final=True)
    if refusal.reason is Reason.TOO_LARGE:
        return Unfit(_too_large(refusal.request), refusal.detail, final=True)
    if not any(map(ask.wish.takes, node.topology.gpus)):
        return Unfit(NOT_WANTED, "none of its GPUs is one that the pod selects", final=True)
    if refusal.reason is Reason.NOT_NEAR:
        missed = lacking(node.topology, refusal.request, ask.preference)
        return Unfit(missed[0].lacking, refusal.detail, final=missed[1])
    return Unfit(_short_of(node, ask, refusal.request), refusal.detail)


def brief(node: NodeState, ask: PodShape) -> Brief | None:
    """Return why a pod of one container that takes any GPU is refused, as `unfit` does, but without
    placing it. None where there is room, wherever the GPUs are."""
    request, gpus = ask.requests[0], node.topology.gpus
    count = max(1, request.whole_gpus)
    if sum([free.fits(request) for free in node.gpus]) >= count:
        return None
    if not gpus:
        return _without_gpus(node), True
    if sum([blocks(gpu.memory) >= request.blocks for gpu in gpus]) < count:
        return _too_large(request), True
    return _short_of(node, ask, request), False


def _without_gpus(node: NodeState) -> str:
    return UNREADABLE if node.trouble else NO_GPUS


def _too_large(request: Request) -> str:
    return TOO_FEW if request.whole_gpus > 1 else TOO_SMALL


def _short_of(node: NodeState, ask: PodShape, request: Request) -> str:
    pairs = zip(node.topology.gpus, node.gpus, strict=True)
    cores = [max(0, free.cores) for gpu, free in pairs if ask.wish.takes(gpu)]
    if sum(cores) < request.cores:
        if node.closed:
            open_ones = [gpu for gpu in node.topology.gpus if gpu.uuid not in node.closed]
            if sum(map(ask.wish.takes, open_ones)) * CORES_PER_GPU < ask.largest.cores:
                # The closed GPUs are missing, not free ones. Example: 4 of 8 GPUs are cordoned, and
                # the pod asks for 5.
                return CLOSED
        return NO_CORES
    if request.whole_gpus:
        return NO_WHOLE
    return NO_MEMORY if max(cores) >= request.cores else SCATTERED

"""Why a pod does not fit a node, in Kubernetes' own phrases. Pure.

kube-scheduler counts equal phrases: `0/9 nodes are available: 4 Insufficient …, 5 node(s) had …`.
So a phrase has no figures; these are in the detail, which `/explain` shows.
"""

from typing import Final, NamedTuple

from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.near import lacking
from gpumanager.placement.values import Reason, Refusal
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


class Unfit(NamedTuple):
    """A node that will not do. final: taking pods away there would not help."""

    phrase: str
    detail: str = ""
    final: bool = False


def full(node: NodeState, ask: PodShape) -> Unfit | None:
    """Return why a pod of one container that takes any GPU is refused, without placing it; None
    where there is room, wherever the GPUs are."""
    request, gpus = ask.requests[0], node.topology.gpus
    count = max(1, request.whole_gpus)
    if sum([free.fits(request) for free in node.gpus]) >= count:
        return None
    large = sum([blocks(gpu.memory) >= request.blocks for gpu in gpus])
    reason = Reason.NO_FREE_GPU if large >= count else Reason.TOO_LARGE
    return unfit(node, ask, Refusal(request, reason, ""))


def unfit(node: NodeState, ask: PodShape, refusal: Refusal) -> Unfit:
    """Return why `node` refused."""
    gpus, request = node.topology.gpus, refusal.request
    if not gpus:
        detail = node.trouble or "its agent has published no inventory"
        return Unfit(UNREADABLE if node.trouble else NO_GPUS, detail, final=True)
    if refusal.reason is Reason.TOO_LARGE:
        few = request.whole_gpus > 1
        return Unfit(TOO_FEW if few else TOO_SMALL, refusal.detail, final=True)
    if not any(map(ask.wish.takes, gpus)):
        return Unfit(NOT_WANTED, "none of its GPUs is one that the pod selects", final=True)
    if refusal.reason is Reason.NOT_NEAR:
        missed = lacking(node.topology, request, ask.preference)
        return Unfit(missed[0].lacking, refusal.detail, final=missed[1])
    pairs = zip(gpus, node.gpus, strict=True)
    cores = [max(0, free.cores) for gpu, free in pairs if ask.wish.takes(gpu)]
    open_ones = [gpu for gpu in gpus if gpu.uuid not in node.closed and ask.wish.takes(gpu)]
    phrase = NO_MEMORY if max(cores) >= request.cores else SCATTERED
    if sum(cores) < request.cores:
        # The closed GPUs may be missing, not free ones. Example: 4 of 8 GPUs are cordoned, and the
        # pod asks for 5.
        most = max(one.cores for one in ask.requests)
        closed = node.closed and len(open_ones) * CORES_PER_GPU < most
        phrase = CLOSED if closed else NO_CORES
    elif request.whole_gpus:
        phrase = NO_WHOLE
    return Unfit(phrase, refusal.detail)

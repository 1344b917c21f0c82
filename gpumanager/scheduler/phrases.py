"""Why a node will not do, in Kubernetes' own phrases. Pure.

kube-scheduler counts equal phrases and says `0/9 nodes are available: 4 Insufficient …, 5 node(s)
had …`. So a phrase names no figure; those stand in the detail, which `/explain` shows.
"""

from dataclasses import dataclass
from typing import Final

from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.near import lacking
from gpumanager.placement.values import GpuBook, Reason, Refusal
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.node import NodeState

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


@dataclass(frozen=True, slots=True)
class Unfit:
    """A node that will not do. final: taking pods away there would not help."""

    phrase: str
    detail: str = ""
    final: bool = False


def unfit(node: NodeState, ask: PodAsk, refusal: Refusal) -> Unfit:
    """Why `node` refused."""
    if node.trouble:
        return Unfit(UNREADABLE, node.trouble, final=True)
    if not node.topology.gpus:
        return Unfit(NO_GPUS, "its agent has published no inventory", final=True)
    if refusal.reason is Reason.TOO_LARGE:
        phrase = TOO_FEW if refusal.request.whole_gpus > 1 else TOO_SMALL
        return Unfit(phrase, refusal.detail, final=True)
    if not any(map(ask.wish.takes, node.topology.gpus)):
        return Unfit(NOT_WANTED, "none of its GPUs is one that the pod selects", final=True)
    if refusal.reason is Reason.NOT_NEAR:
        missed = lacking(node.topology, refusal.request, ask.preference)
        return Unfit(missed[0].lacking, refusal.detail, final=missed[1])
    return Unfit(_short_of(node, ask, refusal), refusal.detail)


def _short_of(node: NodeState, ask: PodAsk, refusal: Refusal) -> str:
    rooms = [node.open_to(ask.wish).of(gpu) for gpu in node.topology.gpus]
    request = refusal.request
    if sum(max(0, room.free_cores) for room in rooms) < request.cores:
        return CLOSED if _would_do_open(node, ask) else NO_CORES
    if request.whole_gpus:
        return NO_WHOLE
    return NO_MEMORY if _enough_cores(rooms, request.cores) else SCATTERED


def _enough_cores(rooms: list[GpuBook], cores: int) -> bool:
    return any(room.free_cores >= cores for room in rooms)


def _would_do_open(node: NodeState, ask: PodAsk) -> bool:
    """Whether it is the closed GPUs that are missing, rather than free ones."""
    open_ones = [gpu for gpu in node.topology.gpus if gpu.uuid not in node.closed]
    wanted = [gpu for gpu in open_ones if ask.wish.takes(gpu)]
    return bool(node.closed) and len(wanted) * 100 < ask.largest.cores

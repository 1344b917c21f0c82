"""Pods and nodes of a trace, as placement sees them, and beside them what the trace counts.

The trace gives a part of a GPU in thousandths; a request has it in hundredths, rounded up. What is
allocated is counted in the thousandths that were asked.
"""

from dataclasses import dataclass
from typing import Final

from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.units import CORES_PER_GPU

MILLI_PER_GPU: Final = 1000


@dataclass(frozen=True, slots=True)
class TracePod:
    """gpu_milli: over all its GPUs."""

    name: str
    ask: PodRequest
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class Workload:
    """nodes: idle. pods: in the order in which they ask."""

    nodes: tuple[FreeNode, ...]
    pods: tuple[TracePod, ...]

    @property
    def capacity_milli(self) -> int:
        return sum(len(node.gpus) for node in self.nodes) * MILLI_PER_GPU


@dataclass(frozen=True, slots=True)
class Step:
    """After one more pod, in thousandths of GPUs. placed: this one was."""

    asked_milli: int
    allocated_milli: int
    placed: bool


@dataclass(frozen=True, slots=True)
class TraceNode(FreeNode):
    """A room that knows of which kind each pod with GPUs is that runs there, in order of the kinds.

    Only one of the baselines asks.
    """

    kinds: tuple[str, ...] = ()


def kind_of(ask: PodRequest) -> str:
    """`share`, or how many whole GPUs: `0`, `1`, `2`…"""
    if not ask.requests:
        return "0"
    return str(ask.cores // CORES_PER_GPU) if ask.cores >= CORES_PER_GPU else "share"


def kinds_on(room: FreeNode) -> tuple[str, ...]:
    return room.kinds if isinstance(room, TraceNode) else ()

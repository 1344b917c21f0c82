"""Pods and nodes of a trace, as placement sees them, and in which order the pods ask.

As the published experiments do: all pods shuffled by the seed, then pods drawn from all of them
with replacement are appended until what is asked reaches the load; a load that is less than the
pods ask together takes the first of the shuffled ones.

The trace gives a part of a GPU in thousandths; a request has it in hundredths, rounded up. What is
allocated is counted in the thousandths that were asked.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gpumanager.errors import InputError
from gpumanager.placement.values import FreeNode, PodRequest

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


def arrange(
    nodes: Sequence[FreeNode], pods: Sequence[TracePod], load: float, seed: int
) -> Workload:
    """Order the pods; raises InputError. load: GPUs asked for in all, per GPU of the nodes."""
    idle = Workload(tuple(nodes), ())
    wanted = load * idle.capacity_milli
    if not any(pod.gpu_milli for pod in pods):
        raise InputError("--pods", "no pod asks for a GPU, so no load can be reached")
    if not wanted:
        raise InputError("--nodes", "no node has a GPU")
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    shuffled = list(pods)
    chance.shuffle(shuffled)
    chosen: list[TracePod] = []
    asked = 0
    while asked < wanted:
        pod = shuffled[len(chosen)] if len(chosen) < len(shuffled) else chance.choice(pods)
        chosen.append(pod)
        asked += pod.gpu_milli
    return Workload(idle.nodes, tuple(chosen))

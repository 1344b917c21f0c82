"""How a policy is asked, and what it is made of: the ways to give a pod GPUs of one node.

Pure. A policy scores one node for one pod and names the GPUs it would take there; the caller takes
the best of all nodes. It sees no node's name: equal nodes have equal scores.

A pod of several containers is given GPUs one request after another, the largest first, each where
the caller's `worth` of what is left is highest. That is not every way there is: a node may be
passed over that a search of all of them would have found a place on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from gpumanager.placement.values import FreeGpu, FreeNode, PodRequest, Request
from gpumanager.placement.workload_mix import Mix

Gpus = tuple[FreeGpu, ...]
Positions = tuple[int, ...]
"""Of GPUs on their node, ascending."""
W = TypeVar("W", float, tuple[float, ...])
"""What a node is worth to a policy: more is better."""


@dataclass(frozen=True, slots=True)
class Score:
    """How well a node suits a pod: higher is better, and only differences mean something.

    gpus: for each request the positions of the GPUs it would take.
    """

    points: float
    gpus: tuple[Positions, ...]


class Policy(Protocol):
    """A rule that says which node, and which GPUs on it, suit a pod best."""

    def score(self, node: FreeNode, pod: PodRequest, mix: Mix) -> Score | None:
        """None: it does not fit."""
        ...


def put(
    node: FreeNode, pod: PodRequest, worth: Callable[[FreeNode], W]
) -> tuple[W, tuple[Positions, ...]] | None:
    """Return the highest worth of what is left, and the GPUs for it; None where it does not fit."""
    if not admits(node, pod):
        return None
    cpu, memory = node.cpu_milli - pod.cpu_milli, node.memory_mib - pod.memory_mib
    node = replace(node, cpu_milli=cpu, memory_mib=memory)
    given: list[Positions] = [()] * len(pod.requests)
    points = None
    sizes = [(request.cores, request.blocks) for request in pod.requests]
    for number in sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True):
        request = pod.requests[number]
        best: tuple[W, FreeNode, Positions] | None = None
        for positions in choices(node.gpus, request):
            left = replace(node, gpus=take(node.gpus, request, positions))
            points = worth(left)
            if best is None or points > best[0]:
                best = points, left, positions
        if best is None:
            return None
        points, node, given[number] = best
    return worth(node) if points is None else points, tuple(given)


def admits(node: FreeNode, pod: PodRequest) -> bool:
    """Return whether all but the GPUs suffices: the host's CPU and memory, and the model."""
    return (
        pod.cpu_milli <= node.cpu_milli
        and pod.memory_mib <= node.memory_mib
        and (not pod.models or not pod.requests or node.model in pod.models)
    )


def choices(gpus: Gpus, request: Request) -> Iterator[Positions]:
    """Ways to give `request` GPUs that differ in what is left.

    Whole GPUs: one way, those with the least memory that suffices. A share: each GPU that has the
    room, one of several equal ones.
    """
    fitting = [position for position, gpu in enumerate(gpus) if gpu.fits(request)]
    if count := request.whole_gpus:
        if len(fitting) >= count:
            fitting.sort(key=lambda position: gpus[position].memory)
            yield tuple(sorted(fitting[:count]))
        return
    first = {gpus[position]: position for position in reversed(fitting)}
    yield from ((position,) for position in sorted(first.values()))


def take(gpus: Gpus, request: Request, positions: Positions) -> Gpus:
    """Return what is left of `gpus` when the request has those."""
    left = list(gpus)
    for position in positions:
        left[position] = gpus[position].less(request)
    return tuple(left)

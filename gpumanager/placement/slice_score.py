"""How well a node suits a pod whose GPUs come from a claim.

kube-scheduler takes the first devices of the node's slice that fit, and the node says in which
order they stand (`offer_order`). So there is no choice left on the node; which node it is counts
all the more, and is judged by the GPUs that the pod would really get there.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gpumanager.placement.binpack import emptiness, fullness
from gpumanager.placement.least_waste import (
    BREAKING,
    ROUNDING,
    STEP,
    breaks_idle_node,
    tie_breaker,
    worth_under,
)
from gpumanager.placement.policies import DEFAULT_POLICY, ROWS, Weights
from gpumanager.placement.policy import Positions, Score, admits, take
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import Mix


def _least_waste(node: FreeNode, left: FreeNode, pod: PodRequest, mix: Mix) -> float:
    worth = worth_under(mix)
    gain = worth.of(left) - worth.of(node)
    if mix.leaving and (breaks_idle_node(node, pod) or breaks_free_gpu(node, left)):
        gain -= mix.leaving * BREAKING
    return math.floor(gain / STEP + ROUNDING) - tie_breaker(node)


def breaks_free_gpu(node: FreeNode, left: FreeNode) -> bool:
    """Return whether a free GPU is shared from now on. Policies that choose among the node's GPUs
    need no such rule."""
    pairs = zip(node.gpus, left.gpus, strict=True)
    return any(before.whole and not after.whole and after.cores for before, after in pairs)


Points = Callable[[FreeNode, FreeNode, PodRequest, Mix], float]
"""Of a node for a pod that leaves so much of it."""
POINTS: Final[Mapping[str, Points]] = MappingProxyType(
    {
        "least-waste": _least_waste,
        "binpack": lambda _node, left, _pod, _mix: fullness(left)[0],
        "spread": lambda _node, left, _pod, _mix: emptiness(left),
    }
)
"""What the policies of these names say where the GPUs of the node are not theirs to choose."""


class SliceScore:
    """As the policies of these weights, but with the GPUs that come first. ordered: the node keeps
    its slice in the order of `offer_order`; otherwise as its GPUs stand."""

    def __init__(
        self, weights: Weights = ((DEFAULT_POLICY, 1.0),), *, ordered: bool = True
    ) -> None:
        self._weights = weights
        self._ordered = ordered

    def score(self, node: FreeNode, pod: PodRequest, mix: Mix) -> Score | None:
        """None: it does not fit."""
        placed = first_in_slice(node, pod, ordered=self._ordered)
        if placed is None:
            return None
        left, gpus = placed
        found = [(name, by, POINTS[name](node, left, pod, mix)) for name, by in self._weights]
        if len(found) == 1:
            return Score(found[0][2], gpus)
        return Score(sum(by * points / ROWS[name].unit for name, by, points in found), gpus)


def first_in_slice(
    node: FreeNode, pod: PodRequest, *, ordered: bool = True
) -> tuple[FreeNode, tuple[Positions, ...]] | None:
    """Return what is left of the node, and the positions for each request; None where one fails."""
    if not admits(node, pod):
        return None
    order, given = list(range(len(node.gpus))), list[Positions]()
    if ordered:
        # GPUs in use come before others, the fullest first.
        states = [(gpu.whole, gpu.cores, gpu.blocks) for gpu in node.gpus]
        order.sort(key=states.__getitem__)
    gpus = node.gpus
    for request in pod.requests:
        count = request.whole_gpus or 1
        fitting = [at for at in order if gpus[at].fits(request)][:count]
        if len(fitting) < count:
            return None
        gpus = take(gpus, request, tuple(fitting))
        given.append(tuple(sorted(fitting)))
    cpu, memory = node.cpu_milli - pod.cpu_milli, node.memory_mib - pod.memory_mib
    return replace(node, gpus=gpus, cpu_milli=cpu, memory_mib=memory), tuple(given)

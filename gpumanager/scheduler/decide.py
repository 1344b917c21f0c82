"""Filter, prioritize, preempt: what kube-scheduler asks, answered from verdicts. Pure.

All nodes that will do are answered, each with a score: which one it is to be is kube-scheduler's
decision, which knows of affinity, spreading and priorities.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import filterfalse
from typing import Final

from gpumanager.kubelet.pods import PodUID
from gpumanager.placement.values import Refusal
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.packing import Packing
from gpumanager.scheduler.phrases import UNKNOWN, Unfit
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.verdicts import Shape

HIGHEST: Final = 10
"""Of an extender's scale."""
NOT_KNOWN: Final = Unfit(UNKNOWN, "no node object has been seen")


@dataclass(frozen=True, slots=True)
class Filtered:
    """fitting: in the order they were asked for. unfit: the others."""

    fitting: Sequence[str]
    unfit: Mapping[str, Unfit]


def filter_nodes(shape: Shape, names: Sequence[str]) -> Filtered:
    """Which of these nodes will do."""
    fits = shape.fits
    if all(map(fits.__contains__, names)):
        return Filtered(names, {})
    fitting = list(filter(fits.__contains__, names))
    left = filterfalse(fits.__contains__, names)
    return Filtered(fitting, {name: shape.unfits.get(name, NOT_KNOWN) for name in left})


def prioritize(shape: Shape, names: Sequence[str]) -> Sequence[tuple[str, int]]:
    """The best have 10, the next 9, and so on to 1; others, and all if all are alike, are left out.

    kube-scheduler counts who is not named as 0. Ten steps are few, so they are spent where the
    choice is made; how far apart the policy's points are says nothing across policies.
    """
    points = list(map(shape.points.get, names))
    found = {one for one in set(points) if one is not None}
    if len(found) <= 1:
        return ()
    best = nlargest(HIGHEST, found)
    scale = {one: HIGHEST - rank for rank, one in enumerate(best)}
    pairs = zip(names, points, strict=True)
    return [(name, scale[one]) for name, one in pairs if one in scale]


def preempt(
    state: ClusterState, ask: PodAsk, victims: Mapping[str, Iterable[PodUID]]
) -> dict[str, Packing]:
    """The nodes of these on which the pod fits once their victims are gone."""
    found = {}
    for name, uids in victims.items():
        node = state.nodes.get(name)
        packing = None if node is None else _once_gone(node, ask, frozenset(uids))
        if isinstance(packing, Packing):
            found[name] = packing
    return found


def _once_gone(node: NodeState, ask: PodAsk, uids: frozenset[PodUID]) -> Packing | Refusal:
    holders = {uid: one for uid, one in node.holders.items() if uid not in uids}
    return node.with_holders(holders, node.load).place(ask)

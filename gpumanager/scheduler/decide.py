"""Filter, prioritize, preempt: what kube-scheduler asks, answered from verdicts. Pure.

All nodes that will do are answered, each with a score: which one it is to be is kube-scheduler's
decision, which knows of affinity, spreading and priorities.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
    fitting = [name for name in names if name in fits]
    if len(fitting) == len(names):
        return Filtered(names, {})
    left = (name for name in names if name not in fits)
    return Filtered(fitting, {name: shape.unfits.get(name, NOT_KNOWN) for name in left})


def prioritize(shape: Shape, names: Collection[str]) -> dict[str, int]:
    """0 to 10 for each: 10 for the best alone, the others by how far they are behind."""
    points = {name: fit.points for name in names if (fit := shape.fits.get(name)) is not None}
    scale = _scale(set(points.values()))
    return {name: scale.get(points.get(name)) or 0 for name in names}


def _scale(found: Collection[float]) -> Mapping[float | None, int]:
    if not found:
        return {}
    best, worst = max(found), min(found)
    span = (best - worst) or 1.0
    scale: dict[float | None, int] = {
        one: int((HIGHEST - 1) * (one - worst) / span) for one in found
    }
    return scale | {best: HIGHEST}


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
    return node.with_holders(holders).place(ask)

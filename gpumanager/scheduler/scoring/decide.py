"""Filter, prioritize, preempt: what kube-scheduler asks, answered from verdicts. Pure.

All nodes that will do are answered, each with a score: which one it is to be is kube-scheduler's
decision, which knows of affinity, spreading and priorities.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

from gpumanager.kube.pod import PodUID
from gpumanager.placement.values import Refusal
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.scoring.packing import Packing
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import UNKNOWN, Brief, Unfit
from gpumanager.scheduler.scoring.verdicts import ShapeVerdicts
from gpumanager.scheduler.state import ClusterState

HIGHEST: Final = 10
"""Of an extender's scale."""
NOT_KNOWN: Final = Unfit(UNKNOWN, "no node object has been seen")

Scores = tuple[tuple[int, Collection[str]], ...]
"""Each score with the nodes that have it, from 10 downwards; who is not named has 0."""


@dataclass(frozen=True, slots=True)
class Left:
    """Nodes that will not do, for one reason. why_of: why one of these will not.

    why: of the first of them, example; all have its phrase, and are final if it is.
    """

    names: Collection[str]
    why_of: Callable[[str], Unfit]
    example: str
    why: Unfit

    @classmethod
    def of(cls, names: Collection[str], why_of: Callable[[str], Unfit]) -> "Left":
        first = next(iter(names))
        return cls(names, why_of, first, why_of(first))


@dataclass(frozen=True, slots=True)
class Filtered:
    """fitting: nodes that will do, in any order. left: the others, by reason."""

    fitting: Collection[str]
    left: tuple[Left, ...] = ()

    @property
    def unfit(self) -> dict[str, Unfit]:
        """The others, one by one."""
        return {name: one.why_of(name) for one in self.left for name in one.names}

    def without(self, refused: Mapping[str, Unfit]) -> "Filtered":
        """Of those that will do, these will not either."""
        if not refused:
            return self
        fitting: list[str] = []
        gone: dict[str, Unfit] = {}  # in the order of the names: the first is an example
        for name in self.fitting:
            if (why := refused.get(name)) is None:
                fitting.append(name)
            else:
                gone[name] = why
        return Filtered(fitting, (*self.left, *by_reason(gone)))


def by_reason(unfit: Mapping[str, Unfit]) -> tuple[Left, ...]:
    """The same nodes, those with one reason together."""
    found: dict[tuple[str, bool], list[str]] = {}
    for name, why in unfit.items():
        found.setdefault((why.phrase, why.final), []).append(name)
    return tuple(Left.of(names, unfit.__getitem__) for names in found.values())


def filter_nodes(shape: ShapeVerdicts, names: Collection[str]) -> Filtered:
    """Which of these nodes will do."""
    fitting: list[str] = []
    left: dict[Brief, list[str]] = {}
    found = shape.found
    for name in names:
        verdict = found.get(name)
        if verdict is None:  # it has changed since, or was never asked about
            verdict = shape.of(name)
        if isinstance(verdict, float):
            fitting.append(name)
        else:
            left.setdefault(verdict, []).append(name)

    def why(name: str) -> Unfit:
        return shape.unfit(name) or NOT_KNOWN

    return Filtered(fitting, tuple(Left.of(some, why) for some in left.values()))


def prioritize(shape: ShapeVerdicts, names: Collection[str]) -> Scores:
    """The best have 10, the next 9, and so on to 1; others, and all if all are alike, are left out.

    kube-scheduler counts who is not named as 0. Ten steps are few, so they are spent where the
    choice is made; how far apart the policy's points are says nothing across policies.
    """
    by_points: dict[float, list[str]] = {}
    found = shape.found
    for name in names:
        points = found.get(name)
        if points is None:
            points = shape.of(name)
        if isinstance(points, float):
            by_points.setdefault(points, []).append(name)
    if len(by_points) <= 1:
        return ()
    best = nlargest(HIGHEST, by_points)
    return tuple((HIGHEST - place, by_points[points]) for place, points in enumerate(best))


def preempt(
    state: ClusterState, ask: PodShape, victims: Mapping[str, Iterable[PodUID]]
) -> dict[str, Packing]:
    """The nodes of these on which the pod fits once their victims are gone.

    All victims stay victims: those that we could spare may be there for CPU, ports or spreading,
    which kube-scheduler has looked at. Where there are none the node is left out: kube-scheduler
    takes one without victims for an error that ends the whole preemption.
    """
    found = {}
    for name, uids in victims.items():
        node, gone = state.nodes.get(name), frozenset(uids)
        packing = _once_gone(node, ask, gone) if node and gone else None
        if isinstance(packing, Packing):
            found[name] = packing
    return found


def _once_gone(node: NodeState, ask: PodShape, uids: frozenset[PodUID]) -> Packing | Refusal:
    holders = {uid: one for uid, one in node.holders.items() if uid not in uids}
    return node.with_holders(holders, node.load).place(ask)

"""Filter, prioritize, preempt: what kube-scheduler asks, answered from verdicts. Pure.

All nodes that will do are answered, each with a score: which one it is to be is kube-scheduler's
decision, which knows of affinity, spreading and priorities.
"""

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
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

Scores = tuple[tuple[int, Collection[str]], ...]
"""Each score with the nodes that have it, from 10 downwards; who is not named has 0."""


@dataclass(frozen=True, slots=True)
class Left:
    """Nodes that will not do, for one reason. whys: of these, and maybe of others.

    why: of the first of them by name; all have its phrase, and are final if it is.
    """

    names: Collection[str]
    whys: Mapping[str, Unfit]
    example: str
    why: Unfit

    @classmethod
    def of(cls, names: Collection[str], whys: Mapping[str, Unfit]) -> "Left":
        first = min(names)
        return cls(names, whys, first, whys[first])


@dataclass(frozen=True, slots=True)
class Filtered:
    """fitting: nodes that will do, in any order. left: the others, by reason."""

    fitting: Collection[str]
    left: tuple[Left, ...] = ()

    @property
    def unfit(self) -> dict[str, Unfit]:
        """The others, one by one."""
        return {name: one.whys[name] for one in self.left for name in one.names}

    def without(self, refused: Mapping[str, Unfit]) -> "Filtered":
        """These will not do either."""
        if not refused:
            return self
        fitting = [name for name in self.fitting if name not in refused]
        return Filtered(fitting, (*self.left, *by_reason(refused)))


def by_reason(unfit: Mapping[str, Unfit]) -> tuple[Left, ...]:
    """The same nodes, those with one reason together."""
    found: dict[tuple[str, bool], list[str]] = {}
    for name, why in unfit.items():
        found.setdefault((why.phrase, why.final), []).append(name)
    return tuple(Left.of(names, unfit) for names in found.values())


def filter_nodes(shape: Shape, names: Collection[str]) -> Filtered:
    """Which of these nodes will do."""
    if shape.fitting.issuperset(names):
        return Filtered(names)
    rest = set(names)
    left = []
    for members in shape.reasons.members.values():
        if found := members & rest:
            left.append(Left.of(found, shape.unfits))
            rest -= found
    if unknown := rest - shape.fitting:
        left.append(Left.of(unknown, dict.fromkeys(unknown, NOT_KNOWN)))
        rest -= unknown
    return Filtered(rest, tuple(left))


def prioritize(shape: Shape, names: Collection[str]) -> Scores:
    """The best have 10, the next 9, and so on to 1; others, and all if all are alike, are left out.

    kube-scheduler counts who is not named as 0. Ten steps are few, so they are spent where the
    choice is made; how far apart the policy's points are says nothing across policies.
    """
    best = (_ranked if shape.few(names) else _among)(shape, names)
    found = tuple(islice(best, HIGHEST))
    if len(found) <= 1:
        return ()
    return tuple((HIGHEST - place, nodes) for place, nodes in enumerate(found))


def _ranked(shape: Shape, names: Collection[str]) -> Iterable[list[str]]:
    """The nodes that fit, those with the most points first: looked up one by one."""
    fits = shape.fits
    found = [(name, fits[name].points) for name in names if name in fits]
    best = nlargest(HIGHEST, {points for _, points in found})
    ranks: dict[float, list[str]] = {points: [] for points in best}
    for name, points in found:
        if points in ranks:
            ranks[points].append(name)
    return ranks.values()


def _among(shape: Shape, names: Collection[str]) -> Iterable[AbstractSet[str]]:
    """The same, looked up in the ranks of all nodes."""
    wanted = names if isinstance(names, AbstractSet) else frozenset(names)
    return (found for members in shape.ranks.best() if (found := members & wanted))


def preempt(
    state: ClusterState, ask: PodAsk, victims: Mapping[str, Iterable[PodUID]]
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


def _once_gone(node: NodeState, ask: PodAsk, uids: frozenset[PodUID]) -> Packing | Refusal:
    holders = {uid: one for uid, one in node.holders.items() if uid not in uids}
    return node.with_holders(holders, node.load).place(ask)

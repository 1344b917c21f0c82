"""Filter, prioritize, preempt: what kube-scheduler asks, answered from verdicts. Pure.

All nodes that will do are answered, each with a score: which one it is to be is kube-scheduler's
decision, which knows of affinity, spreading and priorities.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from itertools import compress, islice
from typing import Final

from gpumanager.kubelet.pods import PodUID
from gpumanager.placement.values import Refusal
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.numbers import NOBODY, Names, Places
from gpumanager.scheduler.packing import Packing
from gpumanager.scheduler.phrases import UNKNOWN, Unfit
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.verdicts import Shape

HIGHEST: Final = 10
"""Of an extender's scale."""
OTHERS: Final = bytes((1, 0)) + bytes(254)
"""Turns what fits into what does not."""
NOT_KNOWN: Final = Unfit(UNKNOWN, "no node object has been seen")

Scores = tuple[tuple[int, Collection[str]], ...]
"""Each score with the nodes that have it, from 10 downwards; who is not named has 0."""


@dataclass(frozen=True, slots=True)
class Left:
    """Nodes that will not do, for one reason. why_of: why one of these will not.

    why: of the first of them by name; all have its phrase, and are final if it is.
    """

    names: Collection[str]
    why_of: Callable[[str], Unfit]
    example: str
    why: Unfit

    @classmethod
    def of(cls, names: Collection[str], why_of: Callable[[str], Unfit]) -> "Left":
        first = min(names)
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
    return tuple(Left.of(names, unfit.__getitem__) for names in found.values())


def filter_nodes(shape: Shape, names: Collection[str]) -> Filtered:
    """Which of these nodes will do."""
    asked = shape.numbers.read(names)
    numbers, fitting = asked.numbers, bytes(asked.pick(shape.fitting))
    if all(fitting):
        return Filtered(names)
    found = Names(compress(names, fitting))
    shape.numbers.note(found, Places(list(compress(numbers, fitting))))
    left = list(_left(shape, set(compress(numbers, fitting.translate(OTHERS)))))
    if NOBODY in numbers:
        unknown = [name for name in names if name not in shape.numbers.of]
        left.append(Left.of(unknown, lambda _: NOT_KNOWN))
    return Filtered(found, tuple(left))


def _left(shape: Shape, lacking: set[int]) -> Iterator[Left]:
    """By reason; nodes that are known."""
    called = shape.numbers.names.__getitem__

    def why(name: str) -> Unfit:
        return shape.unfit(shape.numbers.of[name]) or NOT_KNOWN

    for members in shape.reasons.members.values():
        if found := members & lacking:
            yield Left.of(list(map(called, found)), why)


def prioritize(shape: Shape, names: Collection[str]) -> Scores:
    """The best have 10, the next 9, and so on to 1; others, and all if all are alike, are left out.

    kube-scheduler counts who is not named as 0. Ten steps are few, so they are spent where the
    choice is made; how far apart the policy's points are says nothing across policies.
    """
    best = (_ranked if shape.few(names) else _among)(shape, shape.numbers.read(names))
    found = tuple(islice(best, HIGHEST))
    if len(found) <= 1:
        return ()
    called = shape.numbers.names.__getitem__
    return tuple((HIGHEST - place, list(map(called, nodes))) for place, nodes in enumerate(found))


def _ranked(shape: Shape, asked: Places) -> Iterable[Collection[int]]:
    """The nodes that fit, those with the most points first: looked up one by one."""
    fitting = asked.pick(shape.fitting)
    fits = list(compress(asked.numbers, fitting))
    points = list(compress(asked.pick(shape.points), fitting))
    best = nlargest(HIGHEST, set(points))
    ranks: dict[float, list[int]] = {one: [] for one in best}
    least = best[-1] if best else 0.0
    for number, one in zip(fits, points, strict=True):
        if one >= least:
            ranks[one].append(number)
    return ranks.values()


def _among(shape: Shape, asked: Places) -> Iterable[Collection[int]]:
    """The same, looked up in the ranks of all nodes."""
    wanted = frozenset(asked.numbers)
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

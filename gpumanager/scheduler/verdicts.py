"""What is thought of each node for one shape of pod, kept while nodes change.

A shape's verdicts are made once for all nodes, and then only for those that changed since they were
last asked for. Nodes that are alike share one: ten thousand empty ones cost one search.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Final

from gpumanager.placement.values import Refusal
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.packing import Packing, Positions
from gpumanager.scheduler.phrases import BY_POLICY, Unfit, unfit
from gpumanager.scheduler.policy import Ask, GpuRoom, NodeRoom, Policy, Score
from gpumanager.scheduler.standing import Classes, Ranks
from gpumanager.scheduler.state import ClusterState
from gpumanager.units import blocks

SHAPES: Final = 32
LIKENESSES: Final = 2048


@dataclass(frozen=True, slots=True)
class Fit:
    """A node that will do. points: of the policy, higher is better. packing: what it would take."""

    points: float
    packing: Packing


Verdict = Fit | Unfit


class Shape:
    """One shape of pod. Every node is in one of fits and unfits.

    fitting: the names in fits. ranks: those by their points. reasons: the others, by phrase and
    whether that is final.
    """

    def __init__(self, ask: PodAsk, policy: Policy) -> None:
        self.fits: dict[str, Fit] = {}
        self.unfits: dict[str, Unfit] = {}
        self.fitting: set[str] = set()
        self.ranks = Ranks()
        self.reasons: Classes[tuple[str, bool]] = Classes()
        self._ask = ask
        self._policy = policy
        self._seen = -1
        self._alike: dict[Hashable, Verdict] = {}

    def catch_up(self, state: ClusterState) -> None:
        """Look at what has changed."""
        names = state.since(self._seen) if self._seen >= 0 else None
        if names is None:
            self._forget()
            names = _side_by_side(state.nodes)
        for name in dict.fromkeys(names):
            self._look(name, state.nodes.get(name))
        self._seen = state.changes

    def _forget(self) -> None:
        for one in (self.fits, self.unfits, self.fitting, self.ranks, self.reasons):
            one.clear()

    def _look(self, name: str, node: NodeState | None) -> None:
        self._drop(name)
        verdict = None if node is None else self._verdict(node)
        if isinstance(verdict, Fit):
            self.fits[name] = verdict
            self.fitting.add(name)
            self.ranks.add(name, verdict.points)
        elif verdict is not None:
            self.unfits[name] = verdict
            self.reasons.add(name, (verdict.phrase, verdict.final))

    def _drop(self, name: str) -> None:
        fit, unfit = self.fits.pop(name, None), self.unfits.pop(name, None)
        if fit is not None:
            self.fitting.discard(name)
            self.ranks.discard(name, fit.points)
        if unfit is not None:
            self.reasons.discard(name, (unfit.phrase, unfit.final))

    def _verdict(self, node: NodeState) -> Verdict:
        if self._ask.wish.names_gpus:
            return judge(node, self._ask, self._policy)
        found = self._alike.get(node.likeness)
        if found is None:
            if len(self._alike) >= LIKENESSES:
                self._alike.clear()
            found = self._alike[node.likeness] = judge(node, self._ask, self._policy)
        return found


def _side_by_side(names: Collection[str]) -> list[str]:
    """The same names as new objects that lie beside each other in memory.

    Ten thousand that lie between everything else were a page each, and a look-up of all of them
    took ten times as long.
    """
    return "\n".join(names).split("\n") if names else []


class Verdicts:
    """The shapes that were asked for lately."""

    def __init__(self, state: ClusterState, policy: Policy, shapes: int = SHAPES) -> None:
        self.policy = policy
        self._state = state
        self._most = shapes
        self._shapes: OrderedDict[PodAsk, Shape] = OrderedDict()

    def of(self, ask: PodAsk) -> Shape:
        """Up to date."""
        shape = self._shapes.get(ask)
        if shape is None:
            shape = self._shapes[ask] = Shape(ask, self.policy)
            if len(self._shapes) > self._most:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(ask)
        shape.catch_up(self._state)
        return shape


def judge(node: NodeState, ask: PodAsk, policy: Policy) -> Verdict:
    """By the policy, and by the node's own placement code, which has the last word."""
    score = _score(node, ask, policy)
    packing = node.place(ask, _wanted(ask, score))
    if isinstance(packing, Refusal):
        return unfit(node, ask, packing)
    if score is None:
        return Unfit(BY_POLICY)
    return Fit(score.points, packing)


def _score(node: NodeState, ask: PodAsk, policy: Policy) -> Score | None:
    books = node.open_to(ask.wish)
    rooms = (
        GpuRoom(place, max(0, book.free_cores), max(0, book.free_blocks), blocks(gpu.memory))
        for place, gpu in enumerate(node.topology.gpus)
        if (book := books.of(gpu)).free_cores > 0
    )
    requests = tuple(one.request for one in ask.containers)
    return policy.score(NodeRoom(tuple(rooms)), Ask(requests))


def _wanted(ask: PodAsk, score: Score | None) -> tuple[Positions, ...]:
    if score is None or len(score.gpus) != len(ask.containers):
        return ()
    return score.gpus

"""What is thought of each node for one shape of pod, kept while nodes change.

A verdict is made when it is first asked for, and again when its node has changed since: a question
about a small part of the cluster costs no look at the rest. When other pods than before have become
usual, points are renewed a few nodes at a time: by the old mix and by the new one they are of one
kind, and nobody waits for ten thousand.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import compress, islice
from typing import Final

from gpumanager.placement.cluster import Mix
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.habits import Habits
from gpumanager.scheduler.judging import Fit, Judge, Verdict
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.numbers import NOBODY
from gpumanager.scheduler.phrases import Unfit
from gpumanager.scheduler.standing import Classes, Ranks
from gpumanager.scheduler.state import ClusterState

SHAPES: Final = 64
FEW: Final = 4
"""A question about one node in so many, or less, is answered node by node."""
RENEWED_AT_ONCE: Final = 20
"""Nodes, when something else has become usual: a millisecond or two."""


class Shape:
    """One shape of pod. Every node that was asked about fits or does not.

    fitting: by the number of a node, 1 where it fits. points: likewise, 0 for one that does not;
    both lie close together, since what is looked at in a question comes from main memory.
    ranks: those that fit, by their points. reasons: the others, by phrase and whether that is
    final. numbers: of all nodes.
    """

    def __init__(self, judge: Judge, state: ClusterState) -> None:
        self.fitting = bytearray()
        self.points = array("d")
        self.ranks = Ranks()
        self.reasons: Classes[tuple[str, bool]] = Classes()
        self.numbers = state.numbers
        self._verdicts: list[Verdict | None] = []
        self._state = state
        self._judge = judge
        self._seen = state.changes
        self._unseen = bytearray()
        """By the number of a node, 1 where nobody has asked about it since it changed."""
        self._stale: set[int] = set()
        """Nodes whose points are by an earlier mix."""
        self._grow()

    @property
    def fits(self) -> dict[str, Fit]:
        """By name, of all nodes that fit: for who wants to see everything."""
        found = zip(self.numbers.names, self._verdicts, strict=True)
        return {name: one for name, one in found if isinstance(one, Fit)}

    @property
    def unfits(self) -> dict[str, Unfit]:
        """By name, of all that do not."""
        found = zip(self.numbers.names, self._verdicts, strict=True)
        return {name: one for name, one in found if isinstance(one, Unfit)}

    def unfit(self, node: int) -> Unfit | None:
        """Why this one does not fit; None: that is not known."""
        found = self._verdicts[node]
        return found if isinstance(found, Unfit) else None

    def points_of(self, name: str) -> float | None:
        """None: it does not fit."""
        node = self.numbers.of.get(name, NOBODY)
        return self.points[node] if self.fitting[node] else None

    def few(self, names: Collection[str] | None) -> bool:
        """So few that nothing has to be known of the others; None: all nodes."""
        return names is not None and len(names) * FEW < len(self._state.nodes)

    def catch_up(self, mix: Mix, names: Collection[str] | None) -> None:
        """Look at what has changed, of these. mix: of the pods that are usual now."""
        self._grow()
        changed = self._state.since(self._seen)
        if changed is None:
            self._forget()
        for node in changed or ():
            self._unseen[node] = 1
        self._seen = self._state.changes
        self.renew(mix)
        if names is not None and self.few(names):
            asked = self.numbers.read(names)
            self._look_at(compress(asked.numbers, asked.pick(self._unseen)))
        else:
            self._look_at(self._all_unseen())

    def _all_unseen(self) -> Iterator[int]:
        node = self._unseen.find(1)
        while node >= 0:
            yield node
            node = self._unseen.find(1, node)

    def renew(self, mix: Mix) -> None:
        """A few points by the present mix where they are by another."""
        if mix is not self._judge.mix:
            self._judge.use(mix)
            self._stale = {node for members in self.ranks.best() for node in members}
        if self._stale:
            self._look_at(tuple(islice(self._stale, RENEWED_AT_ONCE)))

    def behind(self, mix: Mix) -> bool:
        """Some points are not by this mix."""
        return bool(self._stale) or mix is not self._judge.mix

    def judge(self, node: NodeState) -> Verdict:
        """Of a node as it is at this moment."""
        return self._judge.of(node)

    def _grow(self) -> None:
        """To the numbers that there are by now."""
        more = len(self.numbers.names) - len(self.points)
        if more:
            self.fitting += bytes(more)
            self._unseen += b"\1" * more
            self.points.frombytes(bytes(self.points.itemsize * more))
            self._verdicts += [None] * more

    def _forget(self) -> None:
        for row in (self.fitting, self.points, self._verdicts, self._unseen):
            del row[:]
        for known in (self.ranks, self.reasons, self._stale):
            known.clear()
        self._grow()

    def _look_at(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self._stale.discard(node)
            self._unseen[node] = 0
            self._look(node, self._state.rows[node])

    def _look(self, number: int, node: NodeState | None) -> None:
        before = self._verdicts[number]
        verdict = None if node is None else self._judge.of(node)
        if verdict is before:
            return
        self._drop(number, before)
        self._verdicts[number] = verdict
        if isinstance(verdict, Fit):
            self.fitting[number], self.points[number] = 1, verdict.points
            self.ranks.add(number, verdict.points)
        elif verdict is not None:
            self.reasons.add(number, (verdict.phrase, verdict.final))

    def _drop(self, number: int, verdict: Verdict | None) -> None:
        if isinstance(verdict, Fit):
            self.fitting[number], self.points[number] = 0, 0.0
            self.ranks.discard(number, verdict.points)
        elif verdict is not None:
            self.reasons.discard(number, (verdict.phrase, verdict.final))


class Verdicts:
    """The shapes that were asked for lately. habits: what is usual; by default nothing is known."""

    def __init__(
        self,
        state: ClusterState,
        habits: Habits | None = None,
        *,
        shapes: int = SHAPES,
        judges: Callable[[PodAsk, frozenset[str], Mix], Judge] = Judge,
    ) -> None:
        self._state = state
        self._judges = judges
        self._habits = habits or Habits()
        self._most = shapes
        self._models = state.models
        self._shapes: OrderedDict[PodAsk, Shape] = OrderedDict()

    def of(self, ask: PodAsk, names: Collection[str] | None = None) -> Shape:
        """Up to date, as far as these nodes go; None: all."""
        if self._models is not self._state.models:
            self._models = self._state.models
            self._shapes.clear()
        shape = self._shapes.get(ask)
        if shape is None:
            shape = self._shapes[ask] = self._new(ask)
            if len(self._shapes) > self._most:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(ask)
        shape.catch_up(self._habits.mix, names)
        return shape

    def _new(self, ask: PodAsk) -> Shape:
        self._state.numbers.tidy()
        return Shape(self._judges(ask, self._state.models, self._habits.mix), self._state)

    def renew(self) -> bool:
        """A few points of one shape by the present mix; False where all are. For idle moments."""
        for shape in self._shapes.values():
            if shape.behind(self._habits.mix):
                shape.renew(self._habits.mix)
                return True
        return False

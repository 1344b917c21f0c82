"""What is thought of each node for one shape of pod, kept while nodes change.

A verdict is made when it is first asked for, and again when its node has changed since: a question
about a small part of the cluster costs no look at the rest. When other pods than before have become
usual, points are renewed a few nodes at a time: by the old mix and by the new one they are of one
kind, and nobody waits for ten thousand.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from gpumanager.placement.workload_mix import Mix
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.judging import Judge, Verdict
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.phrases import Brief, Unfit
from gpumanager.scheduler.state import ClusterState
from gpumanager.scheduler.workload_mix import WorkloadMix

SHAPES: Final = 64
RENEWED_AT_ONCE: Final = 20
"""Nodes, when something else has become usual: a millisecond or two."""
UNSEEN, NOBODY_THERE, FITS, REASONS = range(4)
"""Marks of nodes: nobody has asked since it changed; there is none; it fits. Those from REASONS on
stand for reasons why not, of which there are as many as phrases."""


class Shape:
    """One shape of pod. Every node that was asked about fits or does not.

    marks: by the number of a node, what is known of it. points: likewise, where it fits; both lie
    close together, since what is looked at in a question comes from main memory. reasons: how many
    there are. numbers: of all nodes.
    """

    def __init__(self, judge: Judge, state: ClusterState) -> None:
        self.marks = bytearray()
        self.points = array("d")
        self.numbers = state.numbers
        self._reasons: dict[Brief, int] = {}
        """Their marks."""
        self._state = state
        self._judge = judge
        self._seen = state.changes
        self._stale: set[int] = set()
        """Nodes whose points are by an earlier mix."""
        self._grow()

    @property
    def reasons(self) -> int:
        return len(self._reasons)

    @property
    def fits(self) -> dict[str, float]:
        """Points by name, of all nodes that fit: for who wants to see everything."""
        return {self.numbers.names[node]: self.points[node] for node in _places(self.marks, FITS)}

    @property
    def unfits(self) -> dict[str, Unfit]:
        """By name, of all that do not."""
        found = zip(self.numbers.names, map(self.unfit, range(len(self.marks))), strict=True)
        return {name: one for name, one in found if one}

    def unfit(self, node: int) -> Unfit | None:
        """Why this one does not fit; None: that is not known."""
        there = self._state.rows[node]
        found = self._judge.of(there) if there and self.marks[node] >= REASONS else None
        return found if isinstance(found, Unfit) else None

    def points_of(self, name: str) -> float | None:
        """None: it does not fit."""
        node = self.numbers.of(name)
        return self.points[node] if self.marks[node] == FITS else None

    def catch_up(self, mix: Mix, names: Collection[str] | None) -> None:
        """Look at what has changed, of these; None: of all. mix: of pods that are usual now."""
        self._grow()
        changed = self._state.since(self._seen)
        if changed is None:
            self._forget()
        for node in changed or ():
            self.marks[node] = UNSEEN
        self._seen = self._state.changes
        self.renew(mix)
        if names is None:
            self._look_at(_places(self.marks, UNSEEN))
        else:
            self._look_at(set(self.numbers.read(names).sort(self.marks)[UNSEEN].numbers))

    def renew(self, mix: Mix) -> None:
        """A few points by the present mix where they are by another."""
        if mix is not self._judge.mix:
            self._judge.use(mix)
            self._stale = set(_places(self.marks, FITS))
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
            self.marks += bytes(more)
            self.points.frombytes(bytes(self.points.itemsize * more))

    def _forget(self) -> None:
        for row in (self.marks, self.points):
            del row[:]
        self._stale.clear()
        self._grow()

    def _look_at(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            self._stale.discard(node)
            self._look(node, self._state.rows[node])

    def _look(self, number: int, node: NodeState | None) -> None:
        found = None if node is None else self._judge.brief(node)
        if found is None:
            self.marks[number] = NOBODY_THERE
        elif isinstance(found, float):
            self.marks[number], self.points[number] = FITS, found
        else:
            self.marks[number] = self._reasons.setdefault(found, REASONS + len(self._reasons))


def _places(row: bytearray, mark: int) -> Iterator[int]:
    """Where this mark stands; those behind the last one may be changed meanwhile."""
    place = row.find(mark)
    while place >= 0:
        yield place
        place = row.find(mark, place + 1)


class Verdicts:
    """The shapes that were asked for lately. habits: what is usual; by default nothing is known."""

    def __init__(
        self,
        state: ClusterState,
        habits: WorkloadMix | None = None,
        *,
        shapes: int = SHAPES,
        judges: Callable[[PodAsk, frozenset[str], Mix], Judge] = Judge,
    ) -> None:
        self._state = state
        self._judges = judges
        self._habits = habits or WorkloadMix()
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
        return Shape(self._judges(ask, self._state.models, self._habits.mix), self._state)

    def renew(self) -> bool:
        """A few points of one shape by the present mix; False where all are. For idle moments."""
        for shape in self._shapes.values():
            if shape.behind(self._habits.mix):
                shape.renew(self._habits.mix)
                return True
        return False

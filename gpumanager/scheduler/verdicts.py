"""What is thought of each node for one shape of pod, kept while nodes change.

A shape's verdicts are made once for all nodes, and then only for those that changed since they were
last asked for. When other pods than before have become usual, verdicts are renewed a few at a time:
points by the old mix and by the new one are of one kind, and nobody has to wait for ten thousand.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from gpumanager.placement.cluster import Mix
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.habits import Habits
from gpumanager.scheduler.judging import Fit, Judge, Verdict
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.phrases import Unfit
from gpumanager.scheduler.state import ClusterState

SHAPES: Final = 64
RENEWED_AT_ONCE: Final = 200
"""Nodes, when something else is usual: some milliseconds."""


class Shape:
    """One shape of pod. Every node is in one of fits and unfits. points: of those that fit."""

    def __init__(self, ask: PodAsk, state: ClusterState, mix: Mix) -> None:
        self.fits: dict[str, Fit] = {}
        self.unfits: dict[str, Unfit] = {}
        self.points: dict[str, float] = {}
        self._state = state
        self._judge = Judge(ask, state.models)
        self._judge.use(mix)
        self._seen = -1
        self._stale: dict[str, None] = {}
        """Judged by an earlier mix."""

    def catch_up(self, mix: Mix) -> None:
        """Look at what has changed. mix: of the pods that are usual now."""
        if mix is not self._judge.mix:
            self._judge.use(mix)
            self._stale = dict.fromkeys(self.fits)
        names = self._state.since(self._seen) if self._seen >= 0 else None
        if names is None:
            self._forget()
            names = _side_by_side(self._state.nodes)
        self._look_at(names)
        self._look_at(list(islice(self._stale, RENEWED_AT_ONCE)))
        self._seen = self._state.changes

    @property
    def settled(self) -> bool:
        """All points are by the present mix."""
        return not self._stale

    def judge(self, node: NodeState) -> Verdict:
        """Anew, whatever was thought before."""
        return self._judge.of(node)

    def _forget(self) -> None:
        for kept in (self.fits, self.unfits, self.points, self._stale):
            kept.clear()

    def _look_at(self, names: Iterable[str]) -> None:
        for name in names:
            self._stale.pop(name, None)
            self._look(name, self._state.nodes.get(name))

    def _look(self, name: str, node: NodeState | None) -> None:
        verdict = None if node is None else self._judge.of(node)
        if isinstance(verdict, Fit):
            self.fits[name] = verdict
            self.points[name] = verdict.points
            self.unfits.pop(name, None)
            return
        if self.fits.pop(name, None) is not None:
            del self.points[name]
        if verdict is None:
            self.unfits.pop(name, None)
        else:
            self.unfits[name] = verdict


def _side_by_side(names: Collection[str]) -> list[str]:
    """The same names as new objects that lie beside each other in memory.

    Ten thousand that lie between everything else were a page each, and a look-up of all of them
    took ten times as long.
    """
    return "\n".join(names).split("\n") if names else []


class Verdicts:
    """The shapes that were asked for lately."""

    def __init__(
        self, state: ClusterState, habits: Habits | None = None, shapes: int = SHAPES
    ) -> None:
        self._state = state
        self._habits = habits or Habits()
        self._most = shapes
        self._models = state.models
        self._shapes: OrderedDict[PodAsk, Shape] = OrderedDict()

    def of(self, ask: PodAsk) -> Shape:
        """Up to date."""
        if self._models != self._state.models:
            self._models = self._state.models
            self._shapes.clear()
        shape = self._shapes.get(ask)
        if shape is None:
            shape = self._shapes[ask] = Shape(ask, self._state, self._habits.mix)
            if len(self._shapes) > self._most:
                self._shapes.popitem(last=False)
        self._shapes.move_to_end(ask)
        shape.catch_up(self._habits.mix)
        return shape

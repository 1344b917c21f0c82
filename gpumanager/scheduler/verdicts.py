"""What is thought of each node for one shape of pod, kept while nodes change.

A verdict is made when it is first asked for, and again when its node has changed since: a question
about a small part of the cluster costs no look at the rest. When other pods than before have become
usual, points are renewed a few nodes at a time: by the old mix and by the new one they are of one
kind, and nobody waits for ten thousand.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from gpumanager.placement.cluster import Mix
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.habits import Habits
from gpumanager.scheduler.judging import Fit, Judge, Verdict
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.phrases import Unfit
from gpumanager.scheduler.standing import Classes, Ranks
from gpumanager.scheduler.state import ClusterState

SHAPES: Final = 64
FEW: Final = 4
"""A question about one node in so many, or less, is answered node by node."""
RENEWED_AT_ONCE: Final = 20
"""Nodes, when something else has become usual: a millisecond or two."""


class Shape:
    """One shape of pod. Every node that was asked about is in one of fits and unfits.

    fitting: the names in fits. ranks: those by their points. reasons: the others, by phrase and
    whether that is final. names: see `side_by_side`; of all nodes that there are now.
    """

    def __init__(self, judge: Judge, state: ClusterState, names: Mapping[str, str]) -> None:
        self.fits: dict[str, Fit] = {}
        self.unfits: dict[str, Unfit] = {}
        self.fitting: set[str] = set()
        self.ranks = Ranks()
        self.reasons: Classes[tuple[str, bool]] = Classes()
        self._state = state
        self._judge = judge
        self._names = names
        self._seen = state.changes
        self._changed = dict.fromkeys(names)
        """Nodes about which nobody has asked since."""
        self._stale: dict[str, None] = {}
        """Nodes whose points are by an earlier mix."""

    def few(self, names: Collection[str] | None) -> bool:
        """So few that nothing has to be known of the others; None: all nodes."""
        return names is not None and len(names) * FEW < len(self._state.nodes)

    def catch_up(self, mix: Mix, names: Collection[str] | None) -> None:
        """Look at what has changed, of these. mix: of the pods that are usual now."""
        changed = self._state.since(self._seen)
        if changed is None:
            self._forget()
            changed = self._state.nodes
        self._changed.update(dict.fromkeys(changed))
        self._seen = self._state.changes
        self.renew(mix)
        wanted = self._changed.keys()
        self._look_at(tuple(wanted & set(names or ()) if self.few(names) else wanted))

    def renew(self, mix: Mix) -> None:
        """A few points by the present mix where they are by another."""
        if mix is not self._judge.mix:
            self._judge.use(mix)
            self._stale = dict.fromkeys(self.fits)
        if self._stale:
            self._look_at(tuple(islice(self._stale, RENEWED_AT_ONCE)))

    def behind(self, mix: Mix) -> bool:
        """Some points are not by this mix."""
        return bool(self._stale) or mix is not self._judge.mix

    def judge(self, node: NodeState) -> Verdict:
        """Of a node as it is at this moment."""
        return self._judge.of(node)

    def _forget(self) -> None:
        for kept in (self.fits, self.unfits, self.fitting, self.ranks, self.reasons):
            kept.clear()
        self._changed.clear()
        self._stale.clear()

    def _look_at(self, names: Iterable[str]) -> None:
        for name in names:
            self._stale.pop(name, None)
            self._changed.pop(name, None)
            self._look(name, self._state.nodes.get(name))

    def _look(self, name: str, node: NodeState | None) -> None:
        name = self._names.get(name, name)
        self._drop(name)
        verdict = None if node is None else self._judge.of(node)
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


def side_by_side(names: Collection[str]) -> dict[str, str]:
    """The same names, each by itself, as new objects that lie beside each other in memory.

    Ten thousand that lie between everything else were a page each, and a look-up of all of them
    took ten times as long.
    """
    found = "\n".join(names).split("\n") if names else []
    return dict(zip(found, found, strict=True))


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
        self._names: dict[str, str] = {}

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
        if self._names.keys() != self._state.nodes.keys():
            self._names = side_by_side(self._state.nodes)
        judge = self._judges(ask, self._state.models, self._habits.mix)
        return Shape(judge, self._state, self._names)

    def renew(self) -> bool:
        """A few points of one shape by the present mix; False where all are. For idle moments."""
        for shape in self._shapes.values():
            if shape.behind(self._habits.mix):
                shape.renew(self._habits.mix)
                return True
        return False

"""What is thought of each node for one shape of pod, kept while nodes change.

A verdict is made when it is first asked for, and again when its node has changed since: a question
about a small part of the cluster costs no look at the rest. When other pods than before have become
usual, points are renewed a few nodes at a time: by the old mix and by the new one they are of one
kind, and nobody waits for ten thousand.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from itertools import islice
from typing import Final

from gpumanager.placement.workload_mix import Mix
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.scoring.node_scorer import NodeScorer, Verdict
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import UNKNOWN, Brief, Unfit
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix
from gpumanager.scheduler.state import ClusterState

SHAPES: Final = 64
NOT_SEEN: Final[Brief] = UNKNOWN, False
RENEWED_AT_ONCE: Final = 20
"""Nodes, when something else has become usual: a millisecond or two."""


class ShapeVerdicts:
    """One shape of pod.

    found: by node, of those that were asked about since they changed: its points where the pod
    fits, or why it does not.
    """

    def __init__(self, judge: NodeScorer, state: ClusterState) -> None:
        self.found: dict[str, float | Brief] = {}
        self._state = state
        self._judge = judge
        self._seen = state.changes
        self._stale: set[str] = set()
        """Nodes whose points are by an earlier mix."""

    @property
    def fits(self) -> dict[str, float]:
        """Points by name, of all nodes that fit: for who wants to see everything."""
        return {name: one for name, one in self.found.items() if isinstance(one, float)}

    @property
    def unfits(self) -> dict[str, Unfit]:
        """By name, of all that do not."""
        found = {name: self.unfit(name) for name in self.found}
        return {name: one for name, one in found.items() if one}

    def unfit(self, name: str) -> Unfit | None:
        """Why this node does not fit; None: it does, or is not known."""
        node = self._state.nodes.get(name)
        found = self._judge.of(node) if node else None
        return found if isinstance(found, Unfit) else None

    def points_of(self, name: str) -> float | None:
        """None: it does not fit."""
        found = self.found.get(name)
        return found if isinstance(found, float) else None

    def of(self, name: str) -> float | Brief:
        """Its points, or why it does not fit."""
        found = self.found.get(name)
        return self._look_at(name) if found is None else found

    def catch_up(self, mix: Mix, names: Collection[str] | None) -> None:
        """Forget what has changed, and look at these; None: at all. mix: of pods that are usual."""
        changed = self._state.since(self._seen)
        if changed is None:
            self.found.clear()
            self._stale.clear()
        for name in changed or ():
            self.found.pop(name, None)
        self._seen = self._state.changes
        self.renew(mix)
        for name in self._state.nodes if names is None else names:
            self.of(name)

    def renew(self, mix: Mix) -> None:
        """A few points by the present mix where they are by another."""
        if mix is not self._judge.mix:
            self._judge.use(mix)
            self._stale = set(self.fits)
        if self._stale:
            for name in tuple(islice(self._stale, RENEWED_AT_ONCE)):
                self._look_at(name)

    def behind(self, mix: Mix) -> bool:
        """Some points are not by this mix."""
        return bool(self._stale) or mix is not self._judge.mix

    def judge(self, node: NodeState) -> Verdict:
        """Of a node as it is at this moment."""
        return self._judge.of(node)

    def _look_at(self, name: str) -> float | Brief:
        self._stale.discard(name)
        node = self._state.nodes.get(name)
        if node is None:  # gone, or never seen: anybody may name anything, and it is not kept
            self.found.pop(name, None)
            return NOT_SEEN
        found = self.found[name] = self._judge.brief(node)
        return found


class Verdicts:
    """The shapes that were asked for lately. habits: what is usual; by default nothing is known."""

    def __init__(
        self,
        state: ClusterState,
        habits: WorkloadMix | None = None,
        *,
        shapes: int = SHAPES,
        judges: Callable[[PodShape, frozenset[str], Mix], NodeScorer] = NodeScorer,
    ) -> None:
        self._state = state
        self._judges = judges
        self._habits = habits or WorkloadMix()
        self._most = shapes
        self._models = state.models
        self._shapes: OrderedDict[PodShape, ShapeVerdicts] = OrderedDict()

    def of(self, ask: PodShape, names: Collection[str] | None = None) -> ShapeVerdicts:
        """Up to date. names: nodes to look at now; None: all. At others it looks when asked."""
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

    def _new(self, ask: PodShape) -> ShapeVerdicts:
        return ShapeVerdicts(self._judges(ask, self._state.models, self._habits.mix), self._state)

    def renew(self) -> bool:
        """A few points of one shape by the present mix; False where all are. For idle moments."""
        for shape in self._shapes.values():
            if shape.behind(self._habits.mix):
                shape.renew(self._habits.mix)
                return True
        return False

"""Cached verdicts about each node for one shape of pod; filter and prioritize.

filter returns all nodes on which the pod fits, and prioritize scores them. kube-scheduler chooses,
because it also knows affinity, spreading and priorities.

A verdict is computed when it is first needed, and again when its node has changed since: a request
about a small part of the cluster does not compute the rest. When the workload mix changes, scores
are renewed a few nodes at a time. Scores by the old and the new mix are comparable, so no request
waits for ten thousand nodes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from heapq import nlargest
from itertools import islice
from typing import Final, NamedTuple

from gpumanager.placement.workload_mix import Mix
from gpumanager.scheduler.scoring.node_scorer import Fit, NodeScorer
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import UNKNOWN, Unfit
from gpumanager.scheduler.scoring.workload_mix import WorkloadMix
from gpumanager.scheduler.state import ClusterState

HIGHEST: Final = 10
"""Of an extender's scale."""
NOT_KNOWN: Final = Unfit(UNKNOWN, "no node object has been seen")

Scores = tuple[tuple[int, Collection[str]], ...]
"""Each score with the nodes that have it, from 10 downwards; a node not listed has 0."""
SHAPES: Final = 64
RENEWED_AT_ONCE: Final = 20
"""Nodes, when something else has become usual: a millisecond or two."""


class Left(NamedTuple):
    """Nodes that will not do, for one reason. why: of the first of them; all have its phrase, and
    are final if it is."""

    names: list[str]
    why: Unfit


@dataclass(frozen=True, slots=True)
class Filtered:
    """fitting: nodes that will do, in any order. left: the others, by reason."""

    fitting: Collection[str]
    left: tuple[Left, ...] = ()

    def without(self, refused: Mapping[str, Unfit]) -> "Filtered":
        """Return the same where these nodes are refused too."""
        if not refused:
            return self
        # In the order of the names: the first is an example.
        gone = {name: why for name in self.fitting if (why := refused.get(name))}
        fitting = [name for name in self.fitting if name not in gone]
        return Filtered(fitting, (*self.left, *by_reason(gone)))


def by_reason(unfit: Mapping[str, Unfit]) -> tuple[Left, ...]:
    """Return the same nodes, those with one reason together."""
    found: dict[tuple[str, bool], Left] = {}
    for name, why in unfit.items():
        found.setdefault((why.phrase, why.final), Left([], why)).names.append(name)
    return tuple(found.values())


class ShapeVerdicts:
    """One shape of pod.

    found: by node, of those that were judged since they changed: its points where the pod fits, or
    why it does not, without details.
    """

    def __init__(self, judge: NodeScorer, state: ClusterState) -> None:
        self.found: dict[str, float | Unfit] = {}
        self.judge = judge
        self._state = state
        self._seen = state.changes
        self._stale: set[str] = set()
        """Nodes whose points are by an earlier mix."""

    def unfit(self, name: str) -> Unfit:
        """Return why this node does not fit, in detail."""
        node = self._state.nodes.get(name)
        found = self.judge.of(node) if node else None
        return found if isinstance(found, Unfit) else NOT_KNOWN

    def points_of(self, name: str) -> float | None:
        """Return its points; None: it does not fit."""
        found = self.of(name)
        return found if isinstance(found, float) else None

    def of(self, name: str) -> float | Unfit:
        """Return its points, or why it does not fit."""
        found = self.found.get(name)
        return self._update(name) if found is None else found

    def catch_up(self, mix: Mix) -> None:
        """Forget what has changed, and renew a few points that are by another mix."""
        changed = self._state.since(self._seen)
        if changed is None:
            self.found.clear()
            self._stale.clear()
        for name in changed or ():
            self.found.pop(name, None)
        self._seen = self._state.changes
        if mix is not self.judge.mix:
            self.judge.mix = mix
            self._stale = {name for name, one in self.found.items() if isinstance(one, float)}
        for name in tuple(islice(self._stale, RENEWED_AT_ONCE)):
            self._update(name)

    def _update(self, name: str) -> float | Unfit:
        self._stale.discard(name)
        node = self._state.nodes.get(name)
        if node is None:  # gone, or never seen: a client may name anything, and it is not kept
            self.found.pop(name, None)
            return Unfit(UNKNOWN)
        of = self.judge.of(node, full_is_enough=True)
        self.found[name] = of.points if isinstance(of, Fit) else of._replace(detail="")
        return self.found[name]


class Verdicts:
    """Verdicts for the shapes of the last requests. habits: what is usual."""

    def __init__(self, state: ClusterState, habits: WorkloadMix) -> None:
        self._state = state
        self._habits = habits
        self._models = state.models
        self._shapes: dict[PodShape, ShapeVerdicts] = {}
        """The last one that was asked for comes last."""

    def of(self, ask: PodShape) -> ShapeVerdicts:
        """Return them up to date; nodes are judged when they are needed."""
        if self._models is not self._state.models:
            self._models = self._state.models
            self._shapes.clear()
        shape = self._shapes.pop(ask, None)
        if shape is None:
            judge = NodeScorer(ask, self._state.models, self._habits.mix)
            shape = ShapeVerdicts(judge, self._state)
        self._shapes[ask] = shape
        if len(self._shapes) > SHAPES:
            del self._shapes[next(iter(self._shapes))]
        shape.catch_up(self._habits.mix)
        return shape


def filter_nodes(shape: ShapeVerdicts, names: Collection[str]) -> Filtered:
    """Return which of these nodes will do, and why the others will not."""
    fitting: list[str] = []
    left: dict[Unfit, list[str]] = {}
    for name in names:
        verdict = shape.of(name)
        if isinstance(verdict, float):
            fitting.append(name)
        else:
            left.setdefault(verdict, []).append(name)
    return Filtered(fitting, tuple(Left(some, shape.unfit(some[0])) for some in left.values()))


def prioritize(shape: ShapeVerdicts, names: Collection[str]) -> Scores:
    """Give the best 10, the next 9, and so on to 1; leave out others, and all if all are alike.

    kube-scheduler counts a node that is not listed as 0. Ten steps are few, so they are spent where
    the choice is made; how far apart the policy's points are means nothing across policies.
    """
    by_points: dict[float, list[str]] = {}
    for name in names:
        points = shape.of(name)
        if isinstance(points, float):
            by_points.setdefault(points, []).append(name)
    if len(by_points) <= 1:
        return ()
    best = nlargest(HIGHEST, by_points)
    return tuple((HIGHEST - place, by_points[points]) for place, points in enumerate(best))

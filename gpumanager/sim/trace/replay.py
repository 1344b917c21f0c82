"""Places the pods of a workload one by one.

A pod that fits nowhere is dropped; nobody leaves by himself. The usual asks are those of the whole
workload; how many pods leave is learnt on the way, as the extender learns it. Scores of a shape of
ask are kept, and made anew only for nodes that have changed since that shape was asked for last;
nodes that are alike but for their names share one.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.placement.policy import Policy, Score
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import MIX_DIFFERENCE, Mix, Turnover, mix_of, supply_of
from gpumanager.sim.trace.holding import Given, after, given_back
from gpumanager.sim.trace.values import Step, Workload

NO_FIT: Final = float("-inf")
EQUAL: Final = 1e-9
"""Points that differ by less are a tie: sums in another order."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a pod is."""

    node: int
    gpus: Given


@dataclass(slots=True)
class Scores:
    """Of one shape on every node. seen: how many changes of nodes they know."""

    points: list[float]
    gpus: list[Given]
    seen: int


@dataclass(slots=True)
class Replay:
    """One run of one policy.

    names_decide: ties go to the first node by name, not by chance. mix: None for the usual asks.
    """

    workload: Workload
    policy: Policy
    seed: int
    names_decide: bool = False
    mix: Mix | None = None
    rooms: list[FreeNode] = field(init=False)
    _mix: Mix = field(init=False)
    _chance: random.Random = field(init=False)
    _states: dict[FreeNode, int] = field(init=False, default_factory=dict)
    _state_of: list[int] = field(init=False)
    _changes: list[int] = field(init=False, default_factory=list)
    _scores: dict[PodRequest, Scores] = field(init=False, default_factory=dict)
    _turnover: Turnover = field(init=False, default_factory=Turnover)

    def __post_init__(self) -> None:
        self.rooms = sorted(self.workload.nodes, key=lambda room: room.name)
        self._state_of = [self._state(room) for room in self.rooms]
        self._chance = random.Random(self.seed)  # noqa: S311 - repeatable, not secret
        self._mix = self.mix or usual(self.workload)

    def run(self) -> Iterator[Step]:
        asked = allocated = 0
        for pod in self.workload.pods:
            placed = self.place(pod.ask) is not None
            asked += pod.gpu_milli
            allocated += pod.gpu_milli if placed else 0
            yield Step(asked, allocated, placed)

    def place(self, ask: PodRequest) -> Spot | None:
        """Place a pod; return None where it fits nowhere."""
        if ask.requests and self._turnover.count_arrival():
            leaving = self._turnover.leaving
            if abs(leaving - self._mix.leaving) > MIX_DIFFERENCE:
                self._mix = replace(self._mix, leaving=leaving)
                self._scores.clear()
        scores = self._rate(ask)
        best = max(scores.points, default=NO_FIT)
        if best == NO_FIT:
            return None
        least = best - EQUAL
        equal = [node for node, points in enumerate(scores.points) if points >= least]
        node = equal[0] if self.names_decide else self._chance.choice(equal)
        spot = Spot(node, scores.gpus[node])
        self._put(node, after(self.rooms[node], ask, spot.gpus))
        return spot

    def remove(self, ask: PodRequest, spot: Spot | None) -> None:
        """Remove a pod that leaves, from where it was placed if it was."""
        if ask.requests:
            self._turnover.count_departure()
        if spot is not None:
            self._put(spot.node, given_back(self.rooms[spot.node], ask, spot.gpus))

    def _put(self, node: int, room: FreeNode) -> None:
        self.rooms[node] = room
        self._state_of[node] = self._state(room)
        self._changes.append(node)

    def _state(self, room: FreeNode) -> int:
        """Return the same number for rooms that are equal but for the name."""
        return self._states.setdefault(replace(room, name=""), len(self._states))

    def _rate(self, ask: PodRequest) -> Scores:
        """Bring the scores of a shape up to date."""
        scores = self._scores.get(ask)
        if scores is None:
            everywhere = len(self.rooms)
            scores = Scores([NO_FIT] * everywhere, [()] * everywhere, 0)
            self._scores[ask] = scores
            changed: Sequence[int] = range(everywhere)
        else:
            changed = list(set(self._changes[scores.seen :]))
        rated: dict[int, Score | None] = {}
        for node in changed:
            state = self._state_of[node]
            if state not in rated:
                rated[state] = self.policy.score(self.rooms[node], ask, self._mix)
            score = rated[state]
            scores.points[node] = NO_FIT if score is None else score.points
            scores.gpus[node] = () if score is None else score.gpus
        scores.seen = len(self._changes)
        return scores


def usual(workload: Workload) -> Mix:
    """Return the requests that make up nearly all pods, and the models of all GPUs."""
    mix = mix_of(tuple(Counter(pod.ask for pod in workload.pods).items()))
    gpus = Counter[str]()
    for node in workload.nodes:
        gpus[node.model] += len(node.gpus)
    return replace(mix, supply=supply_of(gpus))

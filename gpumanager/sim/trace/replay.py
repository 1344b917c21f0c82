"""Places the pods of a workload one by one.

A pod that fits nowhere is dropped; none leaves. The usual requests are those of the whole workload.
Nodes that are alike but for their names are in one state. Of a shape of request, the scores of all
states that were there when it was asked for last are kept.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.placement.policy import Policy, Positions, Score, take
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import Mix, mix_of, supply_of
from gpumanager.sim.trace.outcome import Step
from gpumanager.sim.trace.workload import Workload

Given = tuple[Positions, ...]
"""For each request the positions of its GPUs."""

EQUAL: Final = 1e-9
"""Points that differ by less are a tie: sums in another order."""


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a pod is."""

    node: int
    gpus: Given


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
    _scores: dict[PodRequest, dict[int, Score | None]] = field(init=False, default_factory=dict)

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
        scores = {state: score for state, score in self.rate(ask).items() if score}
        if not scores:
            return None
        least = max(score.points for score in scores.values()) - EQUAL
        good = {state: score for state, score in scores.items() if score.points >= least}
        equal = [node for node, state in enumerate(self._state_of) if state in good]
        node = equal[0] if self.names_decide else self._chance.choice(equal)
        score = good[self._state_of[node]]
        self._put(node, self.occupy(self.rooms[node], ask, score.gpus))
        return Spot(node, score.gpus)

    def occupy(self, node: FreeNode, pod: PodRequest, gpus: Given) -> FreeNode:
        """Return the node when the pod has those GPUs; raises ValueError where it has no room."""
        left = node.gpus
        for request, positions in zip(pod.requests, gpus, strict=True):
            left = take(left, request, positions)
        cpu, memory = node.cpu_milli - pod.cpu_milli, node.memory_mib - pod.memory_mib
        if min([cpu, memory, *(gpu.cores for gpu in left)]) < 0:
            raise ValueError(f"{pod} does not fit on {gpus} of {node.name}")
        return replace(node, gpus=left, cpu_milli=cpu, memory_mib=memory)

    def _put(self, node: int, room: FreeNode) -> None:
        self.rooms[node] = room
        self._state_of[node] = self._state(room)

    def _state(self, room: FreeNode) -> int:
        """Return the same number for rooms that are equal but for the name."""
        return self._states.setdefault(replace(room, name=""), len(self._states))

    def rate(self, ask: PodRequest) -> dict[int, Score | None]:
        """Return the score of each state that a node is in now; None where the pod does not fit."""
        known = self._scores.get(ask, {})
        rooms = dict(zip(self._state_of, self.rooms, strict=True))
        scores = {
            state: known[state] if state in known else self.policy.score(room, ask, self._mix)
            for state, room in rooms.items()
        }
        self._scores[ask] = scores
        return scores


def usual(workload: Workload) -> Mix:
    """Return the requests that make up nearly all pods, and the models of all GPUs."""
    mix = mix_of(tuple(Counter(pod.ask for pod in workload.pods).items()))
    gpus = Counter[str]()
    for node in workload.nodes:
        gpus[node.model] += len(node.gpus)
    return replace(mix, supply=supply_of(gpus))

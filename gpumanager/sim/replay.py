"""Places the pods of a workload one by one.

A pod that fits nowhere is dropped; none leaves. The usual requests are those of the whole workload.
Nodes that are alike but for their names are in one state. Of a shape of request, the scores of all
states that were there when it was asked for last are kept.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from gpumanager.placement.policy import Policy, Positions, Score, take
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import Mix, mix_of, supply_of
from gpumanager.sim.trace import Workload

EQUAL: Final = 1e-9
"""Points that differ by less are a tie: sums in another order."""


class Step(NamedTuple):
    """After one more pod, in percent of all GPUs. placed: this one was."""

    asked: float
    allocated: float
    placed: bool


class Spot(NamedTuple):
    """Where a pod is. gpus: for each request their positions."""

    node: int
    gpus: tuple[Positions, ...]


class Replay:
    """One run of one policy.

    names_decide: ties go to the first node by name, not by chance. mix: None for the usual asks.
    """

    def __init__(
        self,
        workload: Workload,
        policy: Policy,
        seed: int,
        *,
        names_decide: bool = False,
        mix: Mix | None = None,
    ) -> None:
        self.workload, self.policy, self.seed = workload, policy, seed
        self.names_decide = names_decide
        self.rooms = sorted(workload.nodes, key=lambda room: room.name)
        self._mix = mix or usual(workload)
        self._chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
        self._states: dict[FreeNode, int] = {}
        self._state_of = [self._state(room) for room in self.rooms]
        self._scores: dict[PodRequest, dict[int, Score | None]] = {}

    def run(self) -> Iterator[Step]:
        asked, allocated, capacity = 0, 0, self.workload.capacity_milli
        for pod in self.workload.pods:
            placed = self.place(pod.ask) is not None
            asked += pod.gpu_milli
            allocated += pod.gpu_milli if placed else 0
            yield Step(100 * asked / capacity, 100 * allocated / capacity, placed)

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

    def occupy(self, node: FreeNode, pod: PodRequest, gpus: tuple[Positions, ...]) -> FreeNode:
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

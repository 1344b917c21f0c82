"""Places the pods of a workload one by one and watches how much of the GPUs is given away.

A pod that fits nowhere is dropped; nobody leaves. Scores of a shape of ask are kept, and made anew
only for nodes that have changed since that shape was asked for last; nodes that are alike but for
their names share one.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.placement.cluster import Ask, Mix, NodeRoom, Policy, Score, mix_of
from gpumanager.placement.rooms import take, without
from gpumanager.sim.trace.values import TracePod, TraceRoom, Workload, kind_of, kinds_on

NO_FIT: Final = float("-inf")
EQUAL: Final = 1e-9
"""Points that differ by less are a tie: sums in another order."""


@dataclass(frozen=True, slots=True)
class Step:
    """After one more pod, in thousandths of GPUs. placed: this one was."""

    asked_milli: int
    allocated_milli: int
    placed: bool


@dataclass(slots=True)
class Scores:
    """Of one shape on every node. seen: how many changes of nodes they know."""

    points: list[float]
    gpus: list[tuple[tuple[int, ...], ...]]
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
    rooms: list[NodeRoom] = field(init=False)
    _mix: Mix = field(init=False)
    _chance: random.Random = field(init=False)
    _states: dict[NodeRoom, int] = field(init=False, default_factory=dict)
    _state_of: list[int] = field(init=False)
    _changes: list[int] = field(init=False, default_factory=list)
    _scores: dict[Ask, Scores] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.rooms = sorted(self.workload.nodes, key=lambda room: room.name)
        self._state_of = [self._state(room) for room in self.rooms]
        self._chance = random.Random(self.seed)  # noqa: S311 - repeatable, not secret
        self._mix = usual(self.workload.pods) if self.mix is None else self.mix

    def run(self) -> Iterator[Step]:
        asked = allocated = 0
        for pod in self.workload.pods:
            placed = self.place(pod.ask)
            asked += pod.gpu_milli
            allocated += pod.gpu_milli if placed else 0
            yield Step(asked, allocated, placed)

    def place(self, ask: Ask) -> bool:
        scores = self._up_to_date(ask)
        best = max(scores.points, default=NO_FIT)
        if best == NO_FIT:
            return False
        least = best - EQUAL
        equal = [node for node, points in enumerate(scores.points) if points >= least]
        node = equal[0] if self.names_decide else self._chance.choice(equal)
        self._put(node, after(self.rooms[node], ask, scores.gpus[node]))
        return True

    def _put(self, node: int, room: NodeRoom) -> None:
        self.rooms[node] = room
        self._state_of[node] = self._state(room)
        self._changes.append(node)

    def _state(self, room: NodeRoom) -> int:
        """The same number for rooms that are equal but for the name."""
        return self._states.setdefault(replace(room, name=""), len(self._states))

    def _up_to_date(self, ask: Ask) -> Scores:
        scores = self._scores.get(ask)
        if scores is None:
            everywhere = len(self.rooms)
            scores = Scores([NO_FIT] * everywhere, [()] * everywhere, 0)
            self._scores[ask] = scores
            changed: Sequence[int] = range(everywhere)
        else:
            changed = list(set(self._changes[scores.seen :]))
        self._rate(scores, changed, ask)
        scores.seen = len(self._changes)
        return scores

    def _rate(self, scores: Scores, nodes: Sequence[int], ask: Ask) -> None:
        rated: dict[int, Score | None] = {}
        for node in nodes:
            state = self._state_of[node]
            if state not in rated:
                rated[state] = self.policy.score(self.rooms[node], ask, self._mix)
            score = rated[state]
            scores.points[node] = NO_FIT if score is None else score.points
            scores.gpus[node] = () if score is None else score.gpus


def usual(pods: Sequence[TracePod]) -> Mix:
    """The asks that make up 95 % of the pods."""
    return mix_of(tuple(Counter(pod.ask for pod in pods).items()))


def after(room: NodeRoom, ask: Ask, gpus: tuple[tuple[int, ...], ...]) -> NodeRoom:
    """The room when the ask has those GPUs; ValueError where it has not the room for it."""
    positions = {gpu.index: place for place, gpu in enumerate(room.gpus)}
    left = room.gpus
    for request, indices in zip(ask.requests, gpus, strict=True):
        left = take(left, request, tuple(positions[index] for index in indices))
    host = without(room, ask)
    least = min([host.cpu_milli, host.memory_mib, *(gpu.free_cores for gpu in left)])
    if least < 0:
        raise ValueError(f"{ask} does not fit on {gpus} of {room.name}")
    return TraceRoom(
        room.name,
        room.model,
        left,
        host.cpu_milli,
        host.memory_mib,
        room.whole_cpu_milli,
        room.whole_memory_mib,
        kinds_on(room) | {kind_of(ask)} if ask.requests else kinds_on(room),
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a run. curve: asked and allocated, percent of all GPUs, at each percent asked."""

    pods: int
    placed: int
    allocation_percent: float
    curve: tuple[tuple[float, float], ...]
    models: dict[str, tuple[int, float]]

    def at(self, load_percent: float) -> float | None:
        """Allocation in percent when this much had been asked for; None where it never was."""
        return next((got for asked, got in self.curve if asked >= load_percent), None)


class Recorder:
    """Makes an outcome of steps."""

    def __init__(self, workload: Workload) -> None:
        self._capacity = workload.capacity_milli
        self._curve: list[tuple[float, float]] = []
        self._last = Step(0, 0, placed=False)
        self._pods = self._placed = 0

    def saw(self, step: Step) -> None:
        self._pods += 1
        self._placed += step.placed
        before, now = (100 * one.asked_milli // self._capacity for one in (self._last, step))
        self._last = step
        if now > before:
            asked, got = step.asked_milli, step.allocated_milli
            self._curve.append((100 * asked / self._capacity, 100 * got / self._capacity))

    def outcome(self, rooms: Sequence[NodeRoom]) -> Outcome:
        percent = 100 * self._last.allocated_milli / self._capacity
        return Outcome(
            self._pods, self._placed, percent, tuple(self._curve), allocation_by_model(rooms)
        )


def allocation_by_model(rooms: Sequence[NodeRoom]) -> dict[str, tuple[int, float]]:
    """GPUs, and percent of their cores that are given away, by model; most GPUs first."""
    gpus: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for room in rooms:
        gpus[room.model] += len(room.gpus)
        free[room.model] += sum(gpu.free_cores for gpu in room.gpus)
    return {
        model: (count, 100 - free[model] / count) for model, count in gpus.most_common() if count
    }

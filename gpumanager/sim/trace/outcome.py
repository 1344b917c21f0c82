"""What came of a replay: how much of the GPUs was allocated, on the way and in the end."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpumanager.placement.values import FreeNode
from gpumanager.sim.trace.workload import Workload


@dataclass(frozen=True, slots=True)
class Step:
    """After one more pod, in thousandths of GPUs. placed: this one was."""

    asked_milli: int
    allocated_milli: int
    placed: bool


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Of a run. curve: asked and allocated, percent of all GPUs, at each percent asked."""

    pods: int
    placed: int
    allocation_percent: float
    curve: tuple[tuple[float, float], ...]
    models: dict[str, tuple[int, float]]

    def at(self, load_percent: float) -> float | None:
        """Return the allocation in percent when so much had been asked; None if it never was."""
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

    def outcome(self, rooms: Sequence[FreeNode]) -> ReplayOutcome:
        percent = 100 * self._last.allocated_milli / self._capacity
        return ReplayOutcome(
            self._pods, self._placed, percent, tuple(self._curve), allocation_by_model(rooms)
        )


def allocation_by_model(rooms: Sequence[FreeNode]) -> dict[str, tuple[int, float]]:
    """Return GPUs, and percent of their cores allocated, by model; most GPUs first."""
    gpus: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for room in rooms:
        gpus[room.model] += len(room.gpus)
        free[room.model] += sum(gpu.cores for gpu in room.gpus)
    return {
        model: (count, 100 - free[model] / count) for model, count in gpus.most_common() if count
    }

"""The two plain policies: fill what is full, or use what is empty."""

from gpumanager.placement.cluster import Ask, Mix, NodeRoom, Score
from gpumanager.placement.rooms import Worth, put
from gpumanager.units import CORES_PER_GPU


class Binpack:
    """The node with the fewest free cores, then the least free CPU; there the fullest GPU."""

    def score(self, room: NodeRoom, ask: Ask, mix: Mix) -> Score | None:  # noqa: ARG002
        return _scored(room, ask, _fullness)


class Spread:
    """The node of whose GPUs and CPU the largest part is free; there the emptiest GPU."""

    def score(self, room: NodeRoom, ask: Ask, mix: Mix) -> Score | None:  # noqa: ARG002
        return _scored(room, ask, _emptiness)


def _scored(room: NodeRoom, ask: Ask, worth: Worth) -> Score | None:
    placed = put(room, ask, worth)
    if placed is None:
        return None
    points, _, gpus = placed
    return Score(points, gpus)


def _fullness(room: NodeRoom) -> float:
    """Of equal sums the one with more in few GPUs: their squares are larger."""
    free = sum([gpu.free_cores for gpu in room.gpus])
    squares = sum([gpu.free_cores**2 for gpu in room.gpus])
    evenness = 1 - squares / (CORES_PER_GPU * free) if free else 0.0
    return -free - evenness / 2 - _part(room.cpu_milli, room.whole_cpu_milli) / 4


def _emptiness(room: NodeRoom) -> float:
    free = sum([gpu.free_cores for gpu in room.gpus])
    squares = sum([gpu.free_cores**2 for gpu in room.gpus])
    whole = CORES_PER_GPU * max(1, len(room.gpus))
    fairness = 1 - squares / (CORES_PER_GPU * whole)
    return free / whole + fairness / 64 + _part(room.cpu_milli, room.whole_cpu_milli) / 256


def _part(free: int, whole: int) -> float:
    return free / whole if whole else 0.0

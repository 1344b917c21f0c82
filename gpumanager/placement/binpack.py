"""The two plain policies: fill what is full, or use what is empty."""

from gpumanager.placement.policy import Score, put
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import Mix
from gpumanager.units import CORES_PER_GPU


class Binpack:
    """The node with the fewest free cores, then the least free CPU; there the fullest GPU: by free
    cores, then by free memory, then by containers."""

    def score(self, node: FreeNode, pod: PodRequest, mix: Mix) -> Score | None:  # noqa: ARG002
        placed = put(node, pod, fullness)
        return placed and Score(placed[0][0], placed[1])


class Spread:
    """The node of whose GPUs and CPU the largest part is free; there the emptiest GPU."""

    def score(self, node: FreeNode, pod: PodRequest, mix: Mix) -> Score | None:  # noqa: ARG002
        placed = put(node, pod, emptiness)
        return placed and Score(*placed)


def fullness(node: FreeNode) -> tuple[float, ...]:
    """Rank equal sums by their squares: those are larger with more in few GPUs."""
    free = sum([gpu.cores for gpu in node.gpus])
    squares = sum([gpu.cores**2 for gpu in node.gpus])
    evenness = 1 - squares / (CORES_PER_GPU * free) if free else 0.0
    cpu = _part(node.cpu_milli, node.total_cpu_milli)
    memory = sum([gpu.blocks**2 for gpu in node.gpus])
    return -free - evenness / 2 - cpu / 4, memory, -sum([gpu.processes**2 for gpu in node.gpus])


def emptiness(node: FreeNode) -> float:
    free = sum([gpu.cores for gpu in node.gpus])
    squares = sum([gpu.cores**2 for gpu in node.gpus])
    whole = CORES_PER_GPU * max(1, len(node.gpus))
    fairness = 1 - squares / (CORES_PER_GPU * whole)
    return free / whole + fairness / 64 + _part(node.cpu_milli, node.total_cpu_milli) / 256


def _part(free: int, whole: int) -> float:
    return free / whole if whole else 0.0

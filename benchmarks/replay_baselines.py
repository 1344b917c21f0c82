"""The policies that the published experiments compare with, by name.

Scores are whole numbers, as a scheduler's are, so that there are ties; on the node the fullest GPU
that fits is taken, but by `random`. Amounts are normalised by the largest node of the experiments.

Fragmentation gradient descent (FGD, USENIX ATC 2023): what of a node's free GPU a typical pod
cannot use is a fragment for that pod: all of it where the pod does not fit or asks for no GPU,
otherwise the GPUs with less free than it asks of one. A node's fragmentation is the mean over the
typical pods, and the best node is where placing a pod lets it grow least. Published scores are
whole numbers from 0 to 100 on a logistic curve, which makes many ties; `exact` leaves that out.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpumanager.placement.policies import POLICIES
from gpumanager.placement.policy import Policy, Score, put
from gpumanager.placement.slice_score import SliceScore, first_in_slice
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import Mix, mix_of
from gpumanager.sim.trace import TracePod
from gpumanager.units import CORES_PER_GPU

LARGEST_CPU_MILLI: Final = 128_000
LARGEST_CORES: Final = 8 * CORES_PER_GPU
BEST: Final = 100

COVERAGE: Final = 0.95
"""Part of all pods that are typical, as published."""

Frees = tuple[int, ...]

Points = Callable[[FreeNode, PodRequest], float]


@dataclass(frozen=True, slots=True)
class Rated:
    """A score for the node from its room before the ask; best fit on it."""

    points: Points

    def score(self, room: FreeNode, ask: PodRequest, mix: Mix) -> Score | None:
        placed = put(room, ask, fullest_gpu(room))
        if placed is None:
            return None
        return Score(float(int(self.points(room, ask))), placed[1])


class Random:
    """Any node that fits, any GPU that fits."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def score(self, room: FreeNode, ask: PodRequest, mix: Mix) -> Score | None:
        placed = put(room, ask, lambda _: self._chance.random())
        return placed and Score(0.0, placed[1])


class StockClaims:
    """Claims without anything of ours: kube-scheduler spreads by CPU and memory, and takes the
    first GPU that fits."""

    def score(self, room: FreeNode, ask: PodRequest, mix: Mix) -> Score | None:
        placed = first_in_slice(room, ask, ordered=False)
        return placed and Score(float(least_allocated(placed[0])), placed[1])


def least_allocated(left: FreeNode) -> int:
    """Score as NodeResourcesFit by default: 0 to 100, from what would be left."""
    cpu = left.cpu_milli * BEST // left.total_cpu_milli if left.total_cpu_milli else 0
    memory = left.memory_mib * BEST // left.total_memory_mib if left.total_memory_mib else 0
    return (cpu + memory) // 2


def fullest_gpu(room: FreeNode) -> Callable[[FreeNode], float]:
    """Prefer on one node the GPU on which the least was free."""
    before = sum(gpu.cores**2 for gpu in room.gpus)
    return lambda left: sum(gpu.cores**2 for gpu in left.gpus) - before


def best_fit(room: FreeNode, ask: PodRequest) -> float:
    """Prefer the least left over, of CPU and GPU alike."""
    cpu = (room.cpu_milli - ask.cpu_milli) / LARGEST_CPU_MILLI
    return BEST * (1 - (cpu + (free_cores(room) - ask.cores) / LARGEST_CORES) / 2)


def dot_product(room: FreeNode, ask: PodRequest) -> float:
    """Prefer the least alike: the product of what is free and asked, of CPU and GPU."""
    cpu = room.cpu_milli * ask.cpu_milli / LARGEST_CPU_MILLI**2
    return BEST * (1 - (cpu + free_cores(room) * ask.cores / LARGEST_CORES**2) / 2)


def gpu_clustering(room: FreeNode, ask: PodRequest) -> float:
    """Put pods of a kind together: shares, one GPU, two… The fullest node of each class first."""
    if not ask.requests:
        return 0.0
    fullness = int(BEST / 4 * (LARGEST_CORES - free_cores(room)) / LARGEST_CORES)
    kinds = set(kinds_on(room))
    if not kinds:
        return BEST / 4 + fullness
    if kind_of(ask) not in kinds:
        return fullness
    return BEST / 4 * (3 if len(kinds) == 1 else 2) + fullness


def gpu_packing(room: FreeNode, ask: PodRequest) -> float:
    """Prefer shared GPUs, the fullest first; then free ones on used nodes; then idle nodes."""
    if not ask.requests:
        return 0.0
    untouched = sum(gpu.cores == CORES_PER_GPU for gpu in room.gpus)
    if untouched == len(room.gpus):
        return max(BEST // 3 - untouched, untouched)
    each = min(ask.cores, CORES_PER_GPU)
    used = sorted(gpu.cores for gpu in room.gpus if gpu.cores >= each)
    taken = used[: max(1, ask.cores // CORES_PER_GPU)]
    fresh = sum(free == CORES_PER_GPU for free in taken)
    if fresh:
        return max(BEST // 2 - fresh, BEST // 3)
    return max(BEST - sum(taken) // 10, BEST // 2)


def free_cores(room: FreeNode) -> int:
    return sum(gpu.cores for gpu in room.gpus)


@dataclass(frozen=True, slots=True)
class TraceNode(FreeNode):
    """A room that knows of which kind each pod with GPUs is that runs there, in order of the kinds.

    Only one of the baselines asks.
    """

    kinds: tuple[str, ...] = ()


def kind_of(ask: PodRequest) -> str:
    """`share`, or how many whole GPUs: `0`, `1`, `2`…"""
    if not ask.requests:
        return "0"
    return str(ask.cores // CORES_PER_GPU) if ask.cores >= CORES_PER_GPU else "share"


def kinds_on(room: FreeNode) -> tuple[str, ...]:
    return room.kinds if isinstance(room, TraceNode) else ()


@dataclass(frozen=True, slots=True)
class Fgd:
    """exact: without the rounding."""

    exact: bool = False

    def score(self, room: FreeNode, ask: PodRequest, mix: Mix) -> Score | None:
        fragments = fragmentation_under(mix)
        before = fragments.of(room)
        placed = put(room, ask, lambda left: self._points(before - fragments.of(left)))
        return placed and Score(*placed)

    def _points(self, less: float) -> float:
        """less: by how many GPUs the node is less fragmented afterwards."""
        return less if self.exact else float(int(100 / (1 + math.exp(-less))))


class Fragmentation:
    """Of nodes, in GPUs, under one mix. Remembers what it summed over GPUs."""

    def __init__(self, mix: Mix) -> None:
        self._typical = [(ask, share) for ask, share in mix.typical if ask.requests]
        self._useless = 1 - sum(share for _, share in self._typical)
        self._terms: dict[Frees, tuple[int, list[tuple[bool, int]]]] = {}

    def of(self, room: FreeNode) -> float:
        frees = tuple([gpu.cores for gpu in room.gpus])
        if frees not in self._terms:
            # For each pod: whether it fits, and what is free on GPUs with enough.
            usable: list[tuple[bool, int]] = []
            for ask, _ in self._typical:
                each = min(ask.requests[0].cores, CORES_PER_GPU)
                enough = [free for free in frees if free >= each]
                fits = len(enough) >= max(1, ask.requests[0].whole_gpus)
                usable.append((fits, sum(enough)))
            self._terms[frees] = sum(frees), usable
        free, usables = self._terms[frees]
        if not free:
            return 0.0
        fragments = self._useless * free
        for (ask, share), (fits, amount) in zip(self._typical, usables, strict=True):
            here = fits and ask.cpu_milli <= room.cpu_milli
            if here and (not ask.models or room.model in ask.models):
                fragments += share * (free - amount)
            else:
                fragments += share * free
        return fragments / CORES_PER_GPU


def typical_of(pods: Sequence[TracePod]) -> Mix:
    """Return the typical pods as published: told apart by GPUs, CPU and models, not by memory."""
    shapes = (PodRequest(pod.ask.requests, pod.ask.cpu_milli, 0, pod.ask.models) for pod in pods)
    return mix_of(tuple(Counter(shapes).items()), COVERAGE)


@lru_cache(maxsize=8)
def fragmentation_under(mix: Mix) -> Fragmentation:
    return Fragmentation(mix)


def policies(seed: int) -> dict[str, Policy]:
    """Return all that a trace can be replayed with. seed: of `random`."""
    return {
        **POLICIES,
        "claims": SliceScore(),
        "claims-stock": StockClaims(),
        "random": Random(seed),
        "dot-product": Rated(dot_product),
        "gpu-clustering": Rated(gpu_clustering),
        "gpu-packing": Rated(gpu_packing),
        "best-fit": Rated(best_fit),
        "fgd": Fgd(),
        "fgd-exact": Fgd(exact=True),
    }

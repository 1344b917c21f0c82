"""Least waste: keep what is free usable by the pods that usually come.

    worth(node) = sum over typical asks t of  w(t) * min(fitting(t), 2 * fed(t))
                + 4 * sum over GPUs of  filled(free cores of it)

    w(t)        how many of the asks for GPUs are like t
    fitting(t)  free cores on GPUs with room for t; 0 where the node has no room for one t
    fed(t)      cores that pods like t could take before the node is out of CPU or memory
    filled(f)   how much of f free cores the next shares of the mix would take, if they came one
                after another and whatever fits is put there (REACH shares)

and points are what the node is worth after the ask less what it was worth before. Two ways to waste
a GPU are seen so: a remainder that fits nobody, and a GPU whose node has no CPU left to feed it.
Twice, because pods that need less CPU come too. How the constants were found: docs/placement.md.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpumanager.placement.cluster import Ask, GpuRoom, Mix, NodeRoom, Score, mix_of
from gpumanager.placement.rooms import Gpus, has_share, put
from gpumanager.placement.values import Request
from gpumanager.units import CORES_PER_GPU

FEEDING: Final = 2.0
REMAINDER: Final = 4.0
REACH: Final = 30
REMEMBERED: Final = 100_000
"""Arrangements of GPUs whose sums are kept per mix."""

PRIOR: Final = mix_of(
    [
        (Ask((Request(cores),), cpu_milli=80 * cores, memory_mib=320 * cores), share)
        for cores, share in ((25, 2.0), (50, 2.0), (100, 4.0), (200, 1.0), (400, 1.0), (800, 1.0))
    ],
    coverage=1.0,
)
"""What is taken as usual while nothing is known: eight CPUs and 32 GiB a GPU."""


class LeastWaste:
    """Take the node, and the GPUs on it, where the least becomes useless."""

    def score(self, room: NodeRoom, ask: Ask, mix: Mix) -> Score | None:
        worth = worth_under(mix).of
        placed = put(room, ask, worth)
        if placed is None:
            return None
        after, _, gpus = placed
        return Score(after - worth(room), gpus)


@dataclass(frozen=True, slots=True)
class Need:
    """One typical ask. group: position of its request among the distinct ones of the mix."""

    weight: float
    group: int
    cores: int
    cpu_milli: int
    memory_mib: int
    models: frozenset[str]


class Worth:
    """What rooms are worth under one mix. Remembers sums over GPUs: few arrangements recur."""

    def __init__(self, mix: Mix) -> None:
        typical = [(ask, share) for ask, share in mix.typical if ask.requests]
        if not typical:
            typical = list(PRIOR.typical)
        total = sum(share for _, share in typical)
        groups: dict[Request, int] = {}
        self._needs = [
            Need(
                share / total,
                groups.setdefault(hardest(ask), len(groups)),
                ask.cores,
                max(1, ask.cpu_milli),
                max(1, ask.memory_mib),
                ask.models,
            )
            for ask, share in typical
        ]
        self._requests = tuple(groups)
        self._filled = fillings(typical)
        self._sums: dict[tuple[tuple[int, int, int], ...], tuple[float, tuple[float, ...]]] = {}

    def of(self, room: NodeRoom) -> float:
        """In cores. Higher is better."""
        remainders, fitting = self._sums_of(room.gpus)
        cpu, memory, model, worth = room.cpu_milli, room.memory_mib, room.model, 0.0
        for need in self._needs:
            amount = fitting[need.group]
            if not amount or cpu < need.cpu_milli or memory < need.memory_mib:
                continue
            if need.models and model not in need.models:
                continue
            pods = min(cpu / need.cpu_milli, memory / need.memory_mib)
            worth += need.weight * min(amount, FEEDING * pods * need.cores)
        return worth + REMAINDER * remainders

    def _sums_of(self, gpus: Gpus) -> tuple[float, tuple[float, ...]]:
        key = tuple([(gpu.free_cores, gpu.free_blocks, gpu.blocks) for gpu in gpus])
        found = self._sums.get(key)
        if found is None:
            if len(self._sums) >= REMEMBERED:
                self._sums.clear()
            found = self._sums[key] = self._sum(gpus)
        return found

    def _sum(self, gpus: Gpus) -> tuple[float, tuple[float, ...]]:
        remainders = sum(self._filled[usable_cores(gpu)] for gpu in gpus)
        return remainders, tuple(fitting(gpus, request) for request in self._requests)


@lru_cache(maxsize=8)
def worth_under(mix: Mix) -> Worth:
    return Worth(mix)


def hardest(ask: Ask) -> Request:
    """What stands for a pod of several containers: all its whole GPUs, or its largest share."""
    whole = [request for request in ask.requests if request.whole_gpus]
    if not whole:
        return max(ask.requests, key=lambda request: (request.cores, request.blocks))
    cores = sum(request.cores for request in whole)
    return Request(cores, max(request.blocks for request in whole))


def fitting(gpus: Gpus, request: Request) -> float:
    """Free cores on GPUs on which `request` fits, as far as their memory feeds it."""
    if request.whole_gpus:
        whole = sum(gpu.untouched and gpu.blocks >= request.blocks for gpu in gpus)
        return float(whole * CORES_PER_GPU) if whole >= request.whole_gpus else 0.0
    return sum(_fed_by_memory(gpu, request) for gpu in gpus if has_share(gpu, request))


def _fed_by_memory(gpu: GpuRoom, request: Request) -> float:
    if not request.blocks:
        return float(gpu.free_cores)
    shares = gpu.free_blocks / request.blocks
    return min(float(gpu.free_cores), FEEDING * shares * request.cores)


def usable_cores(gpu: GpuRoom) -> int:
    """Free cores, but no larger part of the GPU than is free of its memory."""
    if not gpu.blocks:
        return gpu.free_cores
    return min(gpu.free_cores, gpu.free_blocks * CORES_PER_GPU // gpu.blocks)


def fillings(typical: list[tuple[Ask, float]]) -> tuple[float, ...]:
    """For 0 to 100 free cores of a GPU: how many of them the next REACH shares would take."""
    sizes: dict[int, float] = defaultdict(float)
    for ask, share in typical:
        for request in ask.requests:
            if not request.whole_gpus:
                sizes[request.cores] += share
    total = sum(sizes.values())
    chances = [(size, share / total) for size, share in sizes.items()]
    filled = [0.0] * (CORES_PER_GPU + 1)
    for _ in range(REACH):
        filled = [_one_more(free, filled, chances) for free in range(CORES_PER_GPU + 1)]
    return tuple(filled)


def _one_more(free: int, filled: list[float], chances: list[tuple[int, float]]) -> float:
    return sum(
        chance * (size + filled[free - size] if size <= free else filled[free])
        for size, chance in chances
    )

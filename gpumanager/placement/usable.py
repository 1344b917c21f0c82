"""Least waste: keep what is free usable by the pods that usually come.

    worth(node) = sum over its GPUs of  filled(free cores of it)
                + sum over typical asks t of  w(t) * min(fitting(t), FEEDING * fed(t))

    filled(f)   how much of f free cores the next shares of the mix would take, if they came one
                after another and whatever fits is put there (REACH shares); all of a GPU that is
                whole, so that none is broken while a broken one will do
    w(t)        how many of the asks for GPUs are like t
    fitting(t)  free cores on GPUs with room for t; 0 where the node has no room for one t
    fed(t)      cores that pods like t could take before the node is out of CPU or memory, of which
                pods without GPUs take their part

What the node is worth after the ask less what it was worth before shows two ways to waste a GPU:
a remainder that fits nobody, and a GPU whose node has no CPU left to feed it (FEEDING times, as
pods that need less CPU come too). Nodes within a STEP of each other are as good as each other: of
those the one with the least free, so that idle nodes stay idle. How this was found:
docs/placement.md.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from gpumanager.placement.cluster import Ask, GpuRoom, Mix, NodeRoom, Score, mix_of
from gpumanager.placement.rooms import Gpus, has_share, put
from gpumanager.placement.values import Request
from gpumanager.units import CORES_PER_GPU

FEEDING: Final = 2.5
REACH: Final = 30
STEP: Final = 3.0
"""Cores."""

ROUNDING: Final = 1e-9
MOST_FREE: Final = 10_000
PER_CPU: Final = 1e-6

REMEMBERED: Final = 100_000
"""Terms and worths that are kept per mix: some 15 MB."""

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
        steps = math.floor((after - worth(room)) / STEP + ROUNDING)
        return Score(steps - emptiness(room), gpus)


def emptiness(room: NodeRoom) -> float:
    """Less than a step: what is free, in cores; CPUs where those are equal."""
    free = sum([gpu.free_cores for gpu in room.gpus])
    return (free + room.cpu_milli * PER_CPU) / MOST_FREE


@dataclass(frozen=True, slots=True)
class Need:
    """One typical ask, by its hardest request. fed: cores that one such pod feeds."""

    weight: float
    request: Request
    fed: float
    cpu_milli: int
    memory_mib: int
    models: frozenset[str]


Term = tuple[float, float, float, int, int]
"""Weight and amount that one need finds on GPUs, and what it takes: fed cores, CPU, memory."""


@dataclass(slots=True)
class Arrangement:
    """GPUs as they are on some nodes of a model. worths: by free CPU and memory of the host."""

    remainders: float
    terms: tuple[Term, ...]
    worths: dict[tuple[int, int], float] = field(default_factory=dict)


class Worth:
    """What rooms are worth under one mix. Remembers what it summed: few arrangements recur."""

    def __init__(self, mix: Mix) -> None:
        typical = [(ask, share) for ask, share in mix.typical if ask.requests]
        if not typical:
            typical = list(PRIOR.typical)
        total = sum(share for _, share in typical)
        feeding = FEEDING * part_of_gpus(mix)
        self._needs = [_need(ask, share / total, feeding) for ask, share in typical]
        self._filled = fillings(typical)
        self._known: dict[tuple[str, tuple[tuple[int, int, int], ...]], Arrangement] = {}
        self._count = 0

    def of(self, room: NodeRoom) -> float:
        """In cores. Higher is better."""
        here = self._arrangement(room)
        host = room.cpu_milli, room.memory_mib
        worth = here.worths.get(host)
        if worth is None:
            self._count += 1
            worth = here.worths[host] = _evaluate(here, *host)
        return worth

    def _arrangement(self, room: NodeRoom) -> Arrangement:
        key = room.model, tuple([(g.free_cores, g.free_blocks, g.blocks) for g in room.gpus])
        found = self._known.get(key)
        if found is None:
            if self._count >= REMEMBERED:
                self._known.clear()
                self._count = 0
            found = self._known[key] = self._sum(room)
            self._count += 1 + len(found.terms)
        return found

    def _sum(self, room: NodeRoom) -> Arrangement:
        terms = []
        for need in self._needs:
            amount = fitting(room.gpus, need.request)
            if amount and (not need.models or room.model in need.models):
                terms.append((need.weight, amount, need.fed, need.cpu_milli, need.memory_mib))
        remainders = sum(self._filled[usable_cores(gpu)] for gpu in room.gpus)
        return Arrangement(remainders, tuple(terms))


def _evaluate(here: Arrangement, cpu_milli: int, memory_mib: int) -> float:
    worth = here.remainders
    for weight, amount, fed, cpu_each, memory_each in here.terms:
        pods = cpu_milli / cpu_each
        if memory_mib < pods * memory_each:
            pods = memory_mib / memory_each
        if pods >= 1:
            worth += weight * (amount if amount < fed * pods else fed * pods)  # noqa: FURB136 - twice as fast
    return worth


def part_of_gpus(mix: Mix) -> float:
    """Of the CPU that usual pods take, the part of those with GPUs; all of it where none have."""
    taken = sum(share * ask.cpu_milli for ask, share in mix.typical)
    others = sum(share * ask.cpu_milli for ask, share in mix.typical if not ask.requests)
    return 1 - others / taken if taken > others else 1.0


def _need(ask: Ask, weight: float, feeding: float) -> Need:
    cpu, memory = max(1, ask.cpu_milli), max(1, ask.memory_mib)
    return Need(weight, hardest(ask), feeding * ask.cores, cpu, memory, ask.models)


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
    """For 0 to 100 free cores of a GPU: how many of them will be taken."""
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
    return (*filled[:-1], float(CORES_PER_GPU))


def _one_more(free: int, filled: list[float], chances: list[tuple[int, float]]) -> float:
    return sum(
        chance * (size + filled[free - size] if size <= free else filled[free])
        for size, chance in chances
    )

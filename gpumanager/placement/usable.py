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
those the one with the least free, so that idle nodes stay idle.

Where pods leave, CPU comes back sooner than idle nodes do. So with the part that leaves of those
that come, FEEDING grows to twice as much, and breaking an idle node costs up to BREAKING. While a
cluster only fills up, neither matters. How this was found: docs/placement.md.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, sub
from typing import Final, TypeVar

from gpumanager.placement.cluster import Ask, GpuRoom, Mix, NodeRoom, Score, mix_of
from gpumanager.placement.rooms import admits, has_share, put
from gpumanager.placement.values import Request
from gpumanager.units import CORES_PER_GPU

FEEDING: Final = 2.5
REACH: Final = 30
STEP: Final = 3.0
BREAKING: Final = 20.0
"""Cores, as STEP is."""

ROUNDING: Final = 1e-9
MOST_FREE: Final = 10_000
PER_CPU: Final = 1e-6

REMEMBERED: Final = 100_000
"""Amounts of each kind that are kept per mix."""

K = TypeVar("K", bound=Hashable)

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
        worth = worth_under(mix)
        one_share = len(ask.requests) == 1 and not ask.requests[0].whole_gpus
        placed = worth.put_share(room, ask) if one_share else _put(room, ask, worth.of)
        if placed is None:
            return None
        gain, gpus = placed
        if mix.leaving and breaks_idle(room, ask):
            gain -= mix.leaving * BREAKING
        return Score(math.floor(gain / STEP + ROUNDING) - emptiness(room), gpus)


Placed = tuple[float, tuple[tuple[int, ...], ...]]
"""What is left is worth so much more than what was there, when the requests have these."""


def _put(room: NodeRoom, ask: Ask, worth: Callable[[NodeRoom], float]) -> Placed | None:
    placed = put(room, ask, worth)
    return placed and (placed[0] - worth(room), placed[2])


def emptiness(room: NodeRoom) -> float:
    """Less than a step: what is free, in cores; CPUs where those are equal."""
    free = sum([gpu.free_cores for gpu in room.gpus])
    return (free + room.cpu_milli * PER_CPU) / MOST_FREE


def breaks_idle(room: NodeRoom, ask: Ask) -> bool:
    """Nobody has a GPU there, and this would take some of them, but not all."""
    return 0 < ask.cores < CORES_PER_GPU * len(room.gpus) and all(
        gpu.untouched for gpu in room.gpus
    )


@dataclass(frozen=True, slots=True)
class Need:
    """One typical ask, by its hardest request. fed: cores that one such pod feeds. least: cores
    below which none has room."""

    weight: float
    least: float
    request: Request
    fed: float
    cpu_milli: int
    memory_mib: int
    models: frozenset[str]


GpuState = tuple[int, int, int]
"""Free cores, free blocks, all blocks."""


def _states(room: NodeRoom) -> tuple[GpuState, ...]:
    return tuple([(gpu.free_cores, gpu.free_blocks, gpu.blocks) for gpu in room.gpus])


Amounts = Sequence[float]
"""How many cores shares will fill; behind that, for each need how many it finds."""


class Worth:
    """What rooms are worth under one mix. Remembers what it summed: few states recur."""

    def __init__(self, mix: Mix) -> None:
        typical = [(ask, share) for ask, share in mix.typical if ask.requests]
        if not typical:
            typical = list(PRIOR.typical)
        total = sum(share for _, share in typical)
        feeding = FEEDING * (1 + mix.leaving) * part_of_gpus(mix)
        self._needs = [_need(ask, share / total, feeding) for ask, share in typical]
        self._weights = [need.weight for need in self._needs]
        self._leasts = [need.least for need in self._needs]
        self._filled = fillings(typical)
        self._on_gpus: dict[GpuState, Amounts] = {}
        self._changes: dict[tuple[GpuState, GpuState], Amounts] = {}
        self._on_nodes: dict[tuple[GpuState, ...], Amounts] = {}
        self._fed: dict[tuple[str, int, int], Amounts] = {}

    def of(self, room: NodeRoom) -> float:
        """In cores. Higher is better."""
        fed = self._can_feed(room.model, room.cpu_milli, room.memory_mib)
        return self._sum(self._on_node(_states(room)), fed)

    def put_share(self, room: NodeRoom, ask: Ask) -> Placed | None:
        """As `put` for one share; only what changes is summed, since most pods are so."""
        if not admits(room, ask):
            return None
        cores, memory = ask.requests[0].cores, ask.requests[0].blocks
        states = _states(room)
        on_node = self._on_node(states)
        cpu_left, memory_left = room.cpu_milli - ask.cpu_milli, room.memory_mib - ask.memory_mib
        fed = self._can_feed(room.model, cpu_left, memory_left)
        best: tuple[float, GpuState] | None = None
        for state in dict.fromkeys(states):
            if state[0] >= cores and state[1] >= memory:
                left = state[0] - cores, state[1] - memory, state[2]
                worth = self._sum(map(add, on_node, self._change(state, left)), fed)
                if best is None or worth > best[0] + ROUNDING:
                    best = worth, state
        if best is None:
            return None
        before = self._sum(on_node, self._can_feed(room.model, room.cpu_milli, room.memory_mib))
        return best[0] - before, ((room.gpus[states.index(best[1])].index,),)

    def _sum(self, amounts: Iterable[float], fed: Amounts) -> float:
        rest = iter(amounts)
        worth = next(rest)
        for weight, least, amount, most in zip(self._weights, self._leasts, rest, fed, strict=True):
            if amount >= least:
                worth += weight * (amount if amount < most else most)  # noqa: FURB136 - twice as fast
        return worth

    def _change(self, before: GpuState, after: GpuState) -> Amounts:
        """How much more there is once a GPU goes from one state to another."""
        found = self._changes.get((before, after))
        if found is None:
            found = list(map(sub, self._on_gpu(after), self._on_gpu(before)))
            _remember(self._changes, (before, after), found, REMEMBERED // len(found))
        return found

    def _on_node(self, states: tuple[GpuState, ...]) -> Amounts:
        found = self._on_nodes.get(states)
        if found is None:
            rows = [self._on_gpu(state) for state in states] or [self._on_gpu((0, 0, 0))]
            found = [sum(column) for column in zip(*rows, strict=True)]
            _remember(self._on_nodes, states, found, REMEMBERED // len(found))
        return found

    def _on_gpu(self, state: GpuState) -> Amounts:
        found = self._on_gpus.get(state)
        if found is None:
            gpu = GpuRoom(0, *state)
            found = [self._filled[usable_cores(gpu)]]
            found += [found_on(gpu, need.request) for need in self._needs]
            _remember(self._on_gpus, state, found, REMEMBERED // len(found))
        return found

    def _can_feed(self, model: str, cpu_milli: int, memory_mib: int) -> Amounts:
        """For each need what the host can feed of it: nothing where not even one."""
        key = model, cpu_milli, memory_mib
        found = self._fed.get(key)
        if found is None:
            found = [_fed_by(need, *key) for need in self._needs]
            _remember(self._fed, key, found, REMEMBERED // len(found))
        return found


def _fed_by(need: Need, model: str, cpu_milli: int, memory_mib: int) -> float:
    if need.models and model not in need.models:
        return 0.0
    pods = min(cpu_milli / need.cpu_milli, memory_mib / need.memory_mib)
    return need.fed * pods if pods >= 1 else 0.0


def _remember(known: dict[K, Amounts], key: K, found: Amounts, most: int) -> None:
    if len(known) >= most:
        known.clear()
    known[key] = found


def part_of_gpus(mix: Mix) -> float:
    """Of the CPU that usual pods take, the part of those with GPUs; all of it where none have."""
    taken = sum(share * ask.cpu_milli for ask, share in mix.typical)
    others = sum(share * ask.cpu_milli for ask, share in mix.typical if not ask.requests)
    return 1 - others / taken if taken > others else 1.0


def _need(ask: Ask, weight: float, feeding: float) -> Need:
    cpu, memory = max(1, ask.cpu_milli), max(1, ask.memory_mib)
    request = hardest(ask)
    least = max(1.0, float(CORES_PER_GPU * request.whole_gpus))
    return Need(weight, least, request, feeding * ask.cores, cpu, memory, ask.models)


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


def found_on(gpu: GpuRoom, request: Request) -> float:
    """Free cores of one GPU that are of use to `request`, as far as its memory feeds it."""
    if request.whole_gpus:
        return float(CORES_PER_GPU * (gpu.untouched and gpu.blocks >= request.blocks))
    return _fed_by_memory(gpu, request) if has_share(gpu, request) else 0.0


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

"""Least waste: keep what is free usable by the pods that usually come.

    worth(node) = sum over its GPUs of  filled(free cores of it)
                + sum over typical pods t of  w(t) / supply(t) * min(fitting(t), FEEDING * fed(t))

    filled(f)   how much of f free cores the next shares of the mix would take, if they came one
                after another and whatever fits is put there (REACH shares); all of a GPU that is
                whole, so that none is broken while a broken one will do
    w(t)        how many of the pods with GPUs are like t
    supply(t)   the part of all GPUs that are of a model that t may run on: a model that is rare,
                and that many pods name, is worth more than its like
    fitting(t)  free cores on GPUs with room for t; 0 where the node has no room for one t
    fed(t)      cores that pods like t could take before the node is out of CPU or memory, of which
                pods without GPUs take their part

What the node is worth after the pod less what it was worth before shows three ways to waste a GPU:
a remainder that fits no pod, a GPU whose node has no CPU left to feed it (FEEDING times, as pods
that need less CPU come too), and a GPU of a scarce model given to a pod that takes any. Nodes
within a STEP of each other are as good as each other: of those the one with the least free, so that
idle nodes stay idle.

Where pods leave, CPU comes back sooner than idle nodes do. So with the part that leaves of those
that come, FEEDING grows to twice as much, and breaking an idle node costs up to BREAKING. While a
cluster only fills up, neither matters. How this was found: docs/placement.md.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, sub
from typing import Final, TypeVar

from gpumanager.placement.policy import Score, admits, put
from gpumanager.placement.values import FreeGpu, FreeNode, PodRequest, Request
from gpumanager.placement.workload_mix import Mix, mix_of
from gpumanager.units import CORES_PER_GPU

FEEDING: Final = 2.5
REACH: Final = 30
STEP: Final = 3.0
BREAKING: Final = 20.0
"""Cores, as STEP is."""

ROUNDING: Final = 1e-9
MOST_FREE: Final = 10_000
PER_CPU: Final = 1e-6

REMEMBERED_AMOUNTS: Final = 100_000
"""Amounts of each kind that are kept per mix."""

K = TypeVar("K", bound=Hashable)

PRIOR: Final = mix_of(
    [
        (PodRequest((Request(cores),), cpu_milli=80 * cores, memory_mib=320 * cores), share)
        for cores, share in ((25, 2.0), (50, 2.0), (100, 4.0), (200, 1.0), (400, 1.0), (800, 1.0))
    ],
    coverage=1.0,
)
"""What is taken as usual while nothing is known: eight CPUs and 32 GiB a GPU."""


class LeastWaste:
    """Take the node, and the GPUs on it, where the least becomes useless."""

    def score(self, node: FreeNode, pod: PodRequest, mix: Mix) -> Score | None:
        worth = worth_under(mix)
        if len(pod.requests) == 1 and not pod.requests[0].whole_gpus:
            placed = worth.put_share(node, pod)
        else:
            placed = put(node, pod, worth.of)
        if placed is None:
            return None
        gain, gpus = placed[0] - worth.of(node), placed[1]
        if mix.leaving and breaks_idle(node, pod):
            gain -= mix.leaving * BREAKING
        return Score(math.floor(gain / STEP + ROUNDING) - emptiness(node), gpus)


def emptiness(node: FreeNode) -> float:
    """Return what is free, in cores, CPUs where those are equal: always less than a step."""
    free = sum([gpu.cores for gpu in node.gpus])
    return (free + node.cpu_milli * PER_CPU) / MOST_FREE


def breaks_idle(node: FreeNode, pod: PodRequest) -> bool:
    """Return whether all GPUs are free there, and this pod takes some of them, but not all."""
    return 0 < pod.cores < CORES_PER_GPU * len(node.gpus) and all(gpu.whole for gpu in node.gpus)


@dataclass(frozen=True, slots=True)
class Typical:
    """One typical pod, by its hardest request. fed: cores that one such pod feeds. least: cores
    below which none has room."""

    weight: float
    least: float
    request: Request
    fed: float
    cpu_milli: int
    memory_mib: int
    models: frozenset[str]


Amounts = Sequence[float]
"""How many cores shares will fill; behind that, for each need how many it finds."""


class Worth:
    """What nodes are worth under one mix. Remembers what it summed: few states recur."""

    def __init__(self, mix: Mix) -> None:
        typical = [(pod, share) for pod, share in mix.typical if pod.requests]
        if not typical:
            typical = list(PRIOR.typical)
        total = sum(share for _, share in typical)
        feeding = FEEDING * (1 + mix.leaving) * part_of_gpus(mix)
        self._needs = list[Typical]()
        for pod, share in typical:
            request = hardest(pod)
            need = Typical(
                weight=share / total / supplied(pod.models, mix),
                least=max(1.0, float(CORES_PER_GPU * request.whole_gpus)),
                request=request,
                fed=feeding * pod.cores,
                cpu_milli=max(1, pod.cpu_milli),
                memory_mib=max(1, pod.memory_mib),
                models=pod.models,
            )
            self._needs.append(need)
        self._weights = [need.weight for need in self._needs]
        self._leasts = [need.least for need in self._needs]
        self._filled = fillings(typical)
        self._on_gpus: dict[FreeGpu, Amounts] = {}
        self._changes: dict[tuple[FreeGpu, FreeGpu], Amounts] = {}
        self._on_nodes: dict[tuple[FreeGpu, ...], Amounts] = {}
        self._fed: dict[tuple[str, int, int], Amounts] = {}

    def of(self, node: FreeNode) -> float:
        """Return what a node is worth, in cores. Higher is better."""
        fed = self._can_feed(node.model, node.cpu_milli, node.memory_mib)
        return self._sum(self._on_node(node.gpus), fed)

    def put_share(
        self, node: FreeNode, pod: PodRequest
    ) -> tuple[float, tuple[tuple[int, ...], ...]] | None:
        """Choose as `put` does, for one share: only what changes is summed, as most pods are so."""
        if not admits(node, pod):
            return None
        request = pod.requests[0]
        on_node = self._on_node(node.gpus)
        cpu_left, memory_left = node.cpu_milli - pod.cpu_milli, node.memory_mib - pod.memory_mib
        fed = self._can_feed(node.model, cpu_left, memory_left)
        best: tuple[float, FreeGpu] | None = None
        for gpu in dict.fromkeys(node.gpus):
            if gpu.fits(request):
                change = self._change(gpu, gpu.less(request))
                worth = self._sum(map(add, on_node, change), fed)
                if best is None or worth > best[0] + ROUNDING:
                    best = worth, gpu
        return best and (best[0], ((node.gpus.index(best[1]),),))

    def _sum(self, amounts: Iterable[float], fed: Amounts) -> float:
        rest = iter(amounts)
        worth = next(rest)
        for weight, least, amount, most in zip(self._weights, self._leasts, rest, fed, strict=True):
            if amount >= least:
                worth += weight * (amount if amount < most else most)  # noqa: FURB136 - twice as fast
        return worth

    def _change(self, before: FreeGpu, after: FreeGpu) -> Amounts:
        """Return how much more there is once a GPU goes from one state to another."""
        found = self._changes.get((before, after))
        if found is None:
            found = list(map(sub, self._on_gpu(after), self._on_gpu(before)))
            _remember(self._changes, (before, after), found, REMEMBERED_AMOUNTS // len(found))
        return found

    def _on_node(self, gpus: tuple[FreeGpu, ...]) -> Amounts:
        found = self._on_nodes.get(gpus)
        if found is None:
            rows = [self._on_gpu(gpu) for gpu in gpus] or [self._on_gpu(FreeGpu(0))]
            found = [sum(column) for column in zip(*rows, strict=True)]
            _remember(self._on_nodes, gpus, found, REMEMBERED_AMOUNTS // len(found))
        return found

    def _on_gpu(self, gpu: FreeGpu) -> Amounts:
        found = self._on_gpus.get(gpu)
        if found is None:
            found = [self._filled[usable_cores(gpu)]]
            found += [found_on(gpu, need.request) for need in self._needs]
            _remember(self._on_gpus, gpu, found, REMEMBERED_AMOUNTS // len(found))
        return found

    def _can_feed(self, model: str, cpu_milli: int, memory_mib: int) -> Amounts:
        """Return for each need what the host can feed of it: nothing where not even one pod."""
        key = model, cpu_milli, memory_mib
        found = self._fed.get(key)
        if found is None:
            found = [0.0] * len(self._needs)
            for at, need in enumerate(self._needs):
                if not need.models or model in need.models:
                    pods = min(cpu_milli / need.cpu_milli, memory_mib / need.memory_mib)
                    found[at] = need.fed * pods if pods >= 1 else 0.0
            _remember(self._fed, key, found, REMEMBERED_AMOUNTS // len(found))
        return found


def _remember(known: dict[K, Amounts], key: K, found: Amounts, most: int) -> None:
    if len(known) >= most:
        known.clear()
    known[key] = found


def part_of_gpus(mix: Mix) -> float:
    """Return the part of the CPU of usual pods that pods with GPUs take; 1 where none have any."""
    taken = sum(share * pod.cpu_milli for pod, share in mix.typical)
    others = sum(share * pod.cpu_milli for pod, share in mix.typical if not pod.requests)
    return 1 - others / taken if taken > others else 1.0


def supplied(models: frozenset[str], mix: Mix) -> float:
    """Return the part of all GPUs that these models are; 1 for any model, or where unknown."""
    parts = sum(part for model, part in mix.supply if model in models)
    return parts if models and parts else 1.0


@lru_cache(maxsize=8)
def worth_under(mix: Mix) -> Worth:
    return Worth(mix)


def hardest(pod: PodRequest) -> Request:
    """Return what stands for a pod of several containers: its whole GPUs, or its largest share."""
    whole = [request for request in pod.requests if request.whole_gpus]
    if not whole:
        return max(pod.requests, key=lambda request: (request.cores, request.blocks))
    cores = sum(request.cores for request in whole)
    return Request(cores, max(request.blocks for request in whole))


def found_on(gpu: FreeGpu, request: Request) -> float:
    """Return the free cores of one GPU that `request` can use, as far as its memory feeds it."""
    if request.whole_gpus:
        return float(CORES_PER_GPU * gpu.fits(request))
    if not gpu.fits(request) or not request.blocks:
        return float(gpu.cores * gpu.fits(request))
    return min(float(gpu.cores), FEEDING * (gpu.blocks / request.blocks) * request.cores)


def usable_cores(gpu: FreeGpu) -> int:
    """Return the free cores, but no larger part of the GPU than is free of its memory."""
    if not gpu.memory:
        return gpu.cores
    return min(gpu.cores, gpu.blocks * CORES_PER_GPU // gpu.memory)


def fillings(typical: list[tuple[PodRequest, float]]) -> tuple[float, ...]:
    """Return for 0 to 100 free cores of a GPU how many of them will be taken."""
    sizes: dict[int, float] = defaultdict(float)
    for pod, share in typical:
        for request in pod.requests:
            if not request.whole_gpus:
                sizes[request.cores] += share
    total = sum(sizes.values())
    chances = [(size, share / total) for size, share in sizes.items()]
    filled = [0.0] * (CORES_PER_GPU + 1)
    for _ in range(REACH):
        # With one share more to come: it takes its size where that fits, and nothing elsewhere.
        filled = [
            sum(
                chance * (size + filled[free - size] if size <= free else filled[free])
                for size, chance in chances
            )
            for free in range(CORES_PER_GPU + 1)
        ]
    return (*filled[:-1], float(CORES_PER_GPU))

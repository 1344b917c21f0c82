"""Least waste: keep free capacity usable by the pods that usually come.

    worth(node) = sum over its GPUs of  filled(free cores of the GPU)
                + sum over typical pods t of  w(t) / supply(t) * min(fitting(t), FEEDING * fed(t))

    filled(f)   how many of f free cores the next shares of the mix would fill, if REACH shares came
                one after another and each took its cores where they fit; all 100 of a whole GPU,
                so that none is broken while a broken one will do
    w(t)        the part of all pods with GPUs that are like t
    supply(t)   the part of all GPUs whose model t accepts: a rare model that many pods name is
                worth more
    fitting(t)  free cores on GPUs with room for t; 0 if the node has no room for one t
    fed(t)      cores that pods like t could use before the node is out of CPU or memory, of which
                pods without GPUs take their part

A node gets the points worth(after the pod) - worth(before it). They show three ways to waste a GPU:
a remainder that fits no pod; a GPU whose node has no CPU left for it (FEEDING is above 1, as pods
that need less CPU come, too); a GPU of a rare model given to a pod that takes any. Nodes within one
STEP are equally good: the one with the least free is taken, so that idle nodes stay idle.

When pods leave, CPU is freed sooner than whole nodes are. So the more pods leave for those that
come, the larger is FEEDING, up to twice, and breaking an idle node costs up to BREAKING. While a
cluster only fills up, neither matters. How this was found: docs/placement.md.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import add, sub
from typing import Final

from gpumanager.placement.policy import Score, admits, put
from gpumanager.placement.values import FreeGpu, FreeNode, PodRequest, Request
from gpumanager.placement.workload_mix import Mix, mix_of
from gpumanager.units import CORES_PER_GPU

FEEDING: Final = 2.5
REACH: Final = 30
STEP: Final = 3.0
BREAKING: Final = 20.0
"""Both in cores."""

ROUNDING: Final = 1e-9
MOST_FREE_CORES: Final = 10_000
CORES_PER_CPU_MILLI: Final = 1e-6
CACHED_AMOUNTS: Final = 100_000
"""In each cache of each mix."""

PRIOR: Final = mix_of(
    [
        (PodRequest((Request(cores),), cpu_milli=80 * cores, memory_mib=320 * cores), share)
        for cores, share in ((25, 2.0), (50, 2.0), (100, 4.0), (200, 1.0), (400, 1.0), (800, 1.0))
    ],
    coverage=1.0,
)
"""The mix until one is known: eight CPUs and 32 GiB for each GPU."""


class LeastWaste:
    """Takes the node, and the GPUs on it, where the least capacity becomes useless."""

    def score(self, node: FreeNode, pod: PodRequest, mix: Mix) -> Score | None:
        worth = worth_under(mix)
        if len(pod.requests) == 1 and not pod.requests[0].whole_gpus:
            placed = worth.put_share(node, pod)
        else:
            placed = put(node, pod, worth.of)
        if placed is None:
            return None
        worth_after, gpus = placed
        gain = worth_after - worth.of(node)
        if mix.leaving and breaks_idle_node(node, pod):
            gain -= mix.leaving * BREAKING
        return Score(math.floor(gain / STEP + ROUNDING) - tie_breaker(node), gpus)


def tie_breaker(node: FreeNode) -> float:
    """Return less than one step: more for more free cores, and if these are equal, more CPU."""
    free = sum([gpu.cores for gpu in node.gpus])
    return (free + node.cpu_milli * CORES_PER_CPU_MILLI) / MOST_FREE_CORES


def breaks_idle_node(node: FreeNode, pod: PodRequest) -> bool:
    """Return whether all GPUs of the node are free, and the pod takes some of them, but not all."""
    return 0 < pod.cores < CORES_PER_GPU * len(node.gpus) and all(gpu.whole for gpu in node.gpus)


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """A pod of the mix. request: the hardest of its requests. fed: the cores for which its CPU and
    memory count, FEEDING included. least: with fewer free cores none has room."""

    weight: float
    least: float
    request: Request
    fed: float
    cpu_milli: int
    memory_mib: int
    models: frozenset[str]


Amounts = Sequence[float]
"""The terms of a worth, in cores: what shares will fill, then what each typical pod can use."""


class Worth:
    """What nodes are worth under one mix. Sums are cached: the same states of GPUs come again."""

    def __init__(self, mix: Mix) -> None:
        usual = [(pod, share) for pod, share in mix.typical if pod.requests]
        if not usual:
            usual = list(PRIOR.typical)
        total = sum(share for _, share in usual)
        feeding = FEEDING * (1 + mix.leaving) * gpu_pods_cpu_part(mix)
        self._typical = list[TypicalPod]()
        for pod, share in usual:
            request = hardest(pod)
            typical = TypicalPod(
                weight=share / total / supply_of(pod.models, mix),
                least=max(1.0, float(CORES_PER_GPU * request.whole_gpus)),
                request=request,
                fed=feeding * pod.cores,
                cpu_milli=max(1, pod.cpu_milli),
                memory_mib=max(1, pod.memory_mib),
                models=pod.models,
            )
            self._typical.append(typical)
        self._weights = [typical.weight for typical in self._typical]
        self._leasts = [typical.least for typical in self._typical]
        self._filled = expected_fill(usual)
        cached = lru_cache(CACHED_AMOUNTS // (1 + len(self._typical)))
        self._gpu_amounts: Callable[[FreeGpu], Amounts] = cached(
            lambda gpu: [
                self._filled[usable_cores(gpu)],
                *(usable_by(typical.request, gpu) for typical in self._typical),
            ]
        )
        self._node_amounts: Callable[[tuple[FreeGpu, ...]], Amounts] = cached(self._sum_gpus)
        self._change: Callable[[FreeGpu, FreeGpu], Amounts] = cached(
            lambda before, after: list(map(sub, *map(self._gpu_amounts, (after, before))))
        )
        self._can_feed: Callable[[str, int, int], Amounts] = cached(self._sum_fed)

    def of(self, node: FreeNode) -> float:
        """Return what a node is worth, in cores. Higher is better."""
        fed = self._can_feed(node.model, node.cpu_milli, node.memory_mib)
        return self._worth(self._node_amounts(node.gpus), fed)

    def put_share(
        self, node: FreeNode, pod: PodRequest
    ) -> tuple[float, tuple[tuple[int, ...], ...]] | None:
        """Do what `put` does for a pod of one share, as most pods are: faster, since of the node's
        amounts only those of one GPU change."""
        if not admits(node, pod):
            return None
        request = pod.requests[0]
        before = self._node_amounts(node.gpus)
        cpu_left, memory_left = node.cpu_milli - pod.cpu_milli, node.memory_mib - pod.memory_mib
        fed = self._can_feed(node.model, cpu_left, memory_left)
        best: tuple[float, FreeGpu] | None = None
        for gpu in dict.fromkeys(node.gpus):
            if gpu.fits(request):
                change = self._change(gpu, gpu.less(request))
                worth = self._worth(map(add, before, change), fed)
                if best is None or worth > best[0] + ROUNDING:
                    best = worth, gpu
        return best and (best[0], ((node.gpus.index(best[1]),),))

    def _worth(self, amounts: Iterable[float], fed: Amounts) -> float:
        worth, *fitting = amounts
        for weight, least, cores, most in zip(
            self._weights, self._leasts, fitting, fed, strict=True
        ):
            if cores >= least:
                worth += weight * (cores if cores < most else most)  # noqa: FURB136 - twice as fast
        return worth

    def _sum_gpus(self, gpus: tuple[FreeGpu, ...]) -> Amounts:
        rows = [self._gpu_amounts(gpu) for gpu in gpus] or [self._gpu_amounts(FreeGpu(0))]
        return [sum(column) for column in zip(*rows, strict=True)]

    def _sum_fed(self, model: str, cpu_milli: int, memory_mib: int) -> Amounts:
        """Return for each typical pod the cores that a host can feed; 0 if not even one pod."""
        fed = [0.0] * len(self._typical)
        for position, typical in enumerate(self._typical):
            if not typical.models or model in typical.models:
                pods = min(cpu_milli / typical.cpu_milli, memory_mib / typical.memory_mib)
                fed[position] = typical.fed * pods if pods >= 1 else 0.0
        return fed


def gpu_pods_cpu_part(mix: Mix) -> float:
    """Return which part of the CPU of all pods those with GPUs take; 1 if these take none."""
    total = sum(share * pod.cpu_milli for pod, share in mix.typical)
    others = sum(share * pod.cpu_milli for pod, share in mix.typical if not pod.requests)
    return 1 - others / total if total > others else 1.0


def supply_of(models: frozenset[str], mix: Mix) -> float:
    """Return which part of all GPUs is of these models; 1 for any model, or if not known."""
    parts = sum(part for model, part in mix.supply if model in models)
    return parts if models and parts else 1.0


@lru_cache(maxsize=8)
def worth_under(mix: Mix) -> Worth:
    return Worth(mix)


def hardest(pod: PodRequest) -> Request:
    """Return one request for all containers: all whole GPUs together, or the largest share."""
    whole = [request for request in pod.requests if request.whole_gpus]
    if not whole:
        return max(pod.requests, key=lambda request: (request.cores, request.blocks))
    cores = sum(request.cores for request in whole)
    return Request(cores, max(request.blocks for request in whole))


def usable_by(request: Request, gpu: FreeGpu) -> float:
    """Return the free cores of a GPU that such requests can use, before its memory runs out."""
    if request.whole_gpus:
        return float(CORES_PER_GPU * gpu.fits(request))
    if not gpu.fits(request) or not request.blocks:
        return float(gpu.cores * gpu.fits(request))
    return min(float(gpu.cores), FEEDING * (gpu.blocks / request.blocks) * request.cores)


def usable_cores(gpu: FreeGpu) -> int:
    """Return the free cores, but at most the percentage of its memory that is free."""
    if not gpu.memory:
        return gpu.cores
    return min(gpu.cores, gpu.blocks * CORES_PER_GPU // gpu.memory)


def expected_fill(usual: list[tuple[PodRequest, float]]) -> tuple[float, ...]:
    """Return for 0 to 100 free cores of a GPU how many of them shares will fill."""
    sizes: dict[int, float] = defaultdict(float)
    for pod, share in usual:
        for request in pod.requests:
            if not request.whole_gpus:
                sizes[request.cores] += share
    total = sum(sizes.values())
    chances = [(size, share / total) for size, share in sizes.items()]
    filled = [0.0] * (CORES_PER_GPU + 1)
    for _ in range(REACH):
        # One share comes before all those so far: it takes its size if that fits, else nothing.
        filled = [
            sum(
                chance * (size + filled[free - size] if size <= free else filled[free])
                for size, chance in chances
            )
            for free in range(CORES_PER_GPU + 1)
        ]
    return (*filled[:-1], float(CORES_PER_GPU))

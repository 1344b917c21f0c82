"""Pods come and go: what is allocated once no pod stays for ever.

Into an empty cluster pods come one at a time, drawn from the workload. When those that are there
would ask for more than the load, pods leave first, drawn by chance from those that came, whether
they had found a place or not. So the load stays the same, and the allocated part converges.
"""

import random
from bisect import insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from replay_baselines import TraceNode, kind_of, kinds_on

from gpumanager.placement.policy import Positions
from gpumanager.placement.values import FreeGpu, FreeNode, PodRequest
from gpumanager.placement.workload_mix import MIX_DIFFERENCE, Turnover
from gpumanager.sim.replay import Replay, Spot, Step
from gpumanager.sim.trace import TracePod
from gpumanager.units import CORES_PER_GPU


class ReplayWithDepartures(Replay):
    """Pods may leave. How many do is learnt on the way, as the extender learns it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._turnover = Turnover()

    def place(self, ask: PodRequest) -> Spot | None:
        if ask.requests and self._turnover.count_arrival():
            leaving = self._turnover.leaving
            if abs(leaving - self._mix.leaving) > MIX_DIFFERENCE:
                self._mix = replace(self._mix, leaving=leaving)
                self._scores.clear()
        return Replay.place(self, ask)

    def remove(self, ask: PodRequest, spot: Spot | None) -> None:
        """Remove a pod that leaves, from where it was placed if it was."""
        if ask.requests:
            self._turnover.count_departure()
        if spot is not None:
            self._put(spot.node, given_back(self.rooms[spot.node], ask, spot.gpus))

    def occupy(self, node: FreeNode, pod: PodRequest, gpus: tuple[Positions, ...]) -> FreeNode:
        kinds = list(kinds_on(node))
        if pod.requests:
            insort(kinds, kind_of(pod))
        return with_kinds(Replay.occupy(self, node, pod, gpus), kinds)


def given_back(node: FreeNode, pod: PodRequest, gpus: tuple[Positions, ...]) -> FreeNode:
    """Return the node when the pod that had those GPUs has gone."""
    left = list(node.gpus)
    for request, positions in zip(pod.requests, gpus, strict=True):
        for position in positions:
            gpu = left[position]
            cores, blocks = gpu.cores + request.cores, gpu.blocks + request.blocks
            if request.whole_gpus:
                cores, blocks = CORES_PER_GPU, gpu.memory
            left[position] = FreeGpu(cores, blocks, gpu.processes - 1, gpu.memory)
    kinds = list(kinds_on(node))
    if pod.requests:
        kinds.remove(kind_of(pod))
    cpu, memory = node.cpu_milli + pod.cpu_milli, node.memory_mib + pod.memory_mib
    return with_kinds(replace(node, gpus=tuple(left), cpu_milli=cpu, memory_mib=memory), kinds)


def with_kinds(node: FreeNode, kinds: list[str]) -> TraceNode:
    total = node.total_cpu_milli, node.total_memory_mib
    held = node.name, node.model, node.gpus, node.cpu_milli, node.memory_mib
    return TraceNode(*held, *total, tuple(kinds))


@dataclass(slots=True)
class Churn:
    """load: GPUs asked for by those that are there, per GPU of the nodes."""

    replay: ReplayWithDepartures
    load: float

    def run(self, pods: int) -> Iterator[Step]:
        """Yield the steps of so many pods; raises ValueError where the load is below a pod."""
        chance = random.Random(f"churn {self.replay.seed}")
        capacity = self.replay.workload.capacity_milli
        most = self.load * capacity
        there: list[tuple[TracePod, Spot | None]] = []
        asked = given = 0
        for _ in range(pods):
            pod = chance.choice(self.replay.workload.pods)
            while there and asked + pod.gpu_milli > most:
                drawn = chance.randrange(len(there))
                there[drawn], there[-1] = there[-1], there[drawn]
                gone, spot = there.pop()
                self.replay.remove(gone.ask, spot)
                asked -= gone.gpu_milli
                given -= gone.gpu_milli if spot is not None else 0
            spot = self.replay.place(pod.ask)
            there.append((pod, spot))
            asked += pod.gpu_milli
            given += pod.gpu_milli if spot is not None else 0
            yield Step(100 * asked / capacity, 100 * given / capacity, spot is not None)


def steady_allocation(steps: Sequence[Step]) -> float:
    """Return the mean after each pod of the later half."""
    return mean(step.allocated for step in steps[len(steps) // 2 :])

"""The workload mix of the cluster, learnt from the pods that the watch shows.

Pods with GPUs are counted by kind. Pods without GPUs are many and of many kinds; only their part of
the CPU of nodes with GPUs is counted. A new mix makes every cached score stale. So a mix is
computed seldom, and used only if it differs from the current one. It includes how many pods leave,
and the number of GPUs of each model that some pods name.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from gpumanager.placement.least_waste import gpu_pods_cpu_part
from gpumanager.placement.values import PodRequest
from gpumanager.placement.workload_mix import MIX_DIFFERENCE, Mix, RecentPods, Turnover, supply_of
from gpumanager.scheduler.scoring.pod_shape import PodShape

LEAST: Final = 0.05
"""Of the CPU, what pods with GPUs are always thought to get."""


class WorkloadMix:
    """Counts pods; `mix` is what is usual at present, the same value until that has changed."""

    def __init__(self) -> None:
        self.mix = Mix()
        self._history = RecentPods()
        self._turnover = Turnover()

    def saw(self, ask: PodShape, gpus: Mapping[str, int], part: float = 1.0) -> None:
        """Count one more pod. gpus: how many there are, by model. part: of the CPU that is taken,
        what pods with GPUs take."""
        self._history.count(ask.pod_request(frozenset(gpus)))
        if self._turnover.count_arrival():
            mix = beside_others(self._history.mix(), part)
            mix = replace(mix, leaving=self._turnover.leaving, supply=supply_of(gpus))
            if difference(self.mix, mix) > MIX_DIFFERENCE:
                self.mix = mix

    def left(self) -> None:
        """Count a pod that has ended, or is deleted."""
        self._turnover.count_departure()


def beside_others(mix: Mix, part: float) -> Mix:
    """Return a mix of pods with GPUs, and as many without that leave them this part of the CPU
    taken."""
    taken = sum(share * ask.cpu_milli for ask, share in mix.typical)
    others = round(taken * (1 / max(part, LEAST) - 1))
    if others <= 0:
        return mix
    return Mix((*((ask, share / 2) for ask, share in mix.typical), (PodRequest((), others), 0.5)))


def difference(one: Mix, other: Mix) -> float:
    """Return 0 to 1: the part of all pods with GPUs that is of another kind in one than in the
    other, or by how much they differ in what others take of the CPU, in how many leave, or in the
    models of GPUs, if that is more."""
    first, second = _parts(one), _parts(other)
    asks = first.keys() | second.keys()
    pods = sum(abs(first.get(ask, 0.0) - second.get(ask, 0.0)) for ask in asks) / 2
    cpu = abs(gpu_pods_cpu_part(one) - gpu_pods_cpu_part(other))
    had, has = dict(one.supply), dict(other.supply)
    models = had.keys() | has.keys()
    supply = sum(abs(had.get(model, 0.0) - has.get(model, 0.0)) for model in models) / 2
    return max(pods, cpu, supply, abs(one.leaving - other.leaving))


def _parts(mix: Mix) -> Mapping[PodRequest, float]:
    found = {ask: share for ask, share in mix.typical if ask.requests}
    total = sum(found.values())
    return {ask: share / total for ask, share in found.items()}

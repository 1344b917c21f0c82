"""Fragmentation gradient descent (FGD, USENIX ATC 2023): the score of the published experiments.

What of a node's free GPU a typical pod cannot use is a fragment for that pod: all of it where the
pod does not fit or asks for no GPU, otherwise the GPUs with less free than it asks of one. A node's
fragmentation is the mean over the typical pods, and the best node is where placing a pod lets it
grow least. Published scores are whole numbers from 0 to 100 on a logistic curve, which makes many
ties; `exact` leaves that out.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from gpumanager.placement.policy import Score, put
from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.placement.workload_mix import Mix, mix_of
from gpumanager.sim.trace.values import TracePod
from gpumanager.units import CORES_PER_GPU

COVERAGE: Final = 0.95
"""Part of all pods that are typical, as published."""

Frees = tuple[int, ...]


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

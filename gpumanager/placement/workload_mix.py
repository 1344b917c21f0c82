"""The workload mix: which pods usually come, how many leave for them, and which GPUs there are.

Pure. A mix is looked at seldom, and the one in use is given up only for what is DIFFERENT, because
every score depends on it. The extender, which learns from a cluster, and `replay`, which reads a
trace, look at the same moments, by this code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpumanager.placement.values import PodRequest

COVERAGE: Final = 0.99
"""Part of all pods that the typical requests of a mix make up. With less, models that few pods name
are given to others."""

MOST_SHAPES: Final = 10_000
HEAVIEST: Final = 1e100

HALF_LIFE: Final = 1000
"""Pods."""
FIRST: Final = (100, 300)
PODS_PER_CHECK: Final = 1000
MIX_DIFFERENCE: Final = 0.1
"""By how much a part has to have changed."""

DECAY_PER_POD: Final = 2 ** (-1 / HALF_LIFE)


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Which pods are usual here: requests with their share of all pods; shares sum up to 1.

    leaving: how many leave for one that comes, 0 while the cluster only fills up, 1 at most.
    supply: GPU models with their part of all GPUs; empty where that is not known.

    A value with an identity: policies keep what they computed of it for as long as it lives, and
    a score holds until there is a new one. Empty where nothing is known yet.
    """

    typical: tuple[tuple[PodRequest, float], ...] = ()
    leaving: float = 0.0
    supply: tuple[tuple[str, float], ...] = ()


UNKNOWN_MIX: Final = Mix()


@dataclass(slots=True)
class RecentPods:
    """The pods seen, from which mixes are made. Counting one more takes constant time.

    With `half_life` pods behind it, a pod counts half. Of MOST_SHAPES the rarer half is forgotten.
    """

    half_life: int = 50_000
    _weights: dict[PodRequest, float] = field(default_factory=dict)
    _weight: float = 1.0

    def count(self, pod: PodRequest) -> None:
        self._weights[pod] = self._weights.get(pod, 0.0) + self._weight
        self._weight *= 2 ** (1 / self.half_life)
        if len(self._weights) > MOST_SHAPES or self._weight > HEAVIEST:
            heaviest = sorted(self._weights.items(), key=lambda one: -one[1])[: MOST_SHAPES // 2]
            self._weights = {seen: weight / self._weight for seen, weight in heaviest}
            self._weight = 1.0

    def mix(self, coverage: float = COVERAGE) -> Mix:
        """Return the most frequent requests that make up `coverage` of the pods."""
        return mix_of(tuple(self._weights.items()), coverage)


def mix_of(weights: Sequence[tuple[PodRequest, float]], coverage: float = COVERAGE) -> Mix:
    """Return the heaviest requests that make up `coverage` of all weight."""
    left = coverage * sum(weight for _, weight in weights)
    chosen = []
    for pod, weight in sorted(weights, key=lambda one: -one[1]):
        if left <= 0:
            break
        chosen.append((pod, weight))
        left -= weight
    total = sum(weight for _, weight in chosen)
    return Mix(tuple((pod, weight / total) for pod, weight in chosen))


def supply_of(gpus: Mapping[str, int]) -> tuple[tuple[str, float], ...]:
    """Return the supply of a mix, from how many GPUs there are of each model."""
    total = sum(gpus.values())
    return tuple((model, count / total) for model, count in sorted(gpus.items()) if count)


@dataclass(slots=True)
class Turnover:
    """Counts pods with GPUs. seen: how many have come in all."""

    seen: int = 0
    _came: float = 0.0
    _left: float = 0.0

    def count_arrival(self) -> bool:
        """Count one more. Return whether it is time to compute the mix again."""
        self.seen += 1
        self._came = self._came * DECAY_PER_POD + 1
        self._left *= DECAY_PER_POD
        return self.seen in FIRST or self.seen % PODS_PER_CHECK == 0

    def count_departure(self) -> None:
        """Count one that is gone."""
        self._left += 1

    @property
    def leaving(self) -> float:
        """Return 0 while no pod leaves, 1 where as many leave as come, or more."""
        return min(1.0, self._left / self._came) if self._came else 0.0

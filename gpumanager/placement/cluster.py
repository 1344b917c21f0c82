"""What placing a pod on one of many nodes works on: asks, rooms, the mix, and a score.

Pure. A policy scores one node for one ask and names the GPUs it would take there; whoever calls
takes the best of all nodes. It sees no node's name: equal rooms have equal scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gpumanager.placement.values import Request
from gpumanager.units import CORES_PER_GPU

COVERAGE: Final = 0.99
"""Part of all pods that the typical asks of a mix make up. With less, models that few pods name
are given to others."""

MOST_SHAPES: Final = 10_000
HEAVIEST: Final = 1e100


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod needs of a node. Two pods with equal asks are one shape: scores can be shared.

    requests: what its containers ask of GPUs, as Kubernetes counts them; empty for a CPU pod.
    models: GPU models it may run on; empty for any.
    """

    requests: tuple[Request, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    models: frozenset[str] = frozenset()

    @property
    def cores(self) -> int:
        """Percent of a GPU, over all requests: 100 per whole GPU."""
        return sum(request.cores for request in self.requests)


@dataclass(frozen=True, slots=True)
class GpuRoom:
    """What is free on one GPU. index: of the GPU on its node. blocks: free and used together."""

    index: int
    free_cores: int
    free_blocks: int = 0
    blocks: int = 0

    @property
    def untouched(self) -> bool:
        """It can be given whole."""
        return self.free_cores == CORES_PER_GPU and self.free_blocks == self.blocks


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """What is free on one node, and how much it has in all (`whole_…`).

    gpus: those that may be given; one that is cordoned or unhealthy is left out.
    """

    name: str
    model: str
    gpus: tuple[GpuRoom, ...]
    cpu_milli: int
    memory_mib: int
    whole_cpu_milli: int
    whole_memory_mib: int


@dataclass(frozen=True, slots=True)
class Score:
    """How well a node suits an ask: higher is better, and only differences mean something.

    gpus: for each request the indices it would take, ascending.
    """

    points: float
    gpus: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Mix:
    """Which pods are usual here: asks with their share of all pods; shares sum up to 1.

    leaving: how many leave for one that comes, 0 while the cluster only fills up, 1 at most.

    A value with an identity: policies keep what they computed of it for as long as it lives, and
    a score holds until there is a new one. Empty where nothing is known yet.
    """

    typical: tuple[tuple[Ask, float], ...] = ()
    leaving: float = 0.0


class Policy(Protocol):
    """A rule that says which node suits an ask best."""

    def score(self, room: NodeRoom, ask: Ask, mix: Mix) -> Score | None:
        """None: it does not fit."""
        ...


@dataclass(slots=True)
class History:
    """The pods seen, from which mixes are made. Counting one more takes constant time.

    With `half_life` pods behind it, a pod counts half. Of MOST_SHAPES the rarer half is forgotten.
    """

    half_life: int = 50_000
    _weights: dict[Ask, float] = field(default_factory=dict)
    _weight: float = 1.0

    def saw(self, ask: Ask) -> None:
        self._weights[ask] = self._weights.get(ask, 0.0) + self._weight
        self._weight *= 2 ** (1 / self.half_life)
        if len(self._weights) > MOST_SHAPES or self._weight > HEAVIEST:
            self._shrink()

    def mix(self, coverage: float = COVERAGE) -> Mix:
        """The most frequent asks that make up `coverage` of the pods."""
        return mix_of(tuple(self._weights.items()), coverage)

    def _shrink(self) -> None:
        heaviest = sorted(self._weights.items(), key=lambda one: -one[1])[: MOST_SHAPES // 2]
        self._weights = {ask: weight / self._weight for ask, weight in heaviest}
        self._weight = 1.0


def mix_of(weights: Sequence[tuple[Ask, float]], coverage: float = COVERAGE) -> Mix:
    """The heaviest asks that make up `coverage` of all weight."""
    left = coverage * sum(weight for _, weight in weights)
    chosen = []
    for ask, weight in sorted(weights, key=lambda one: -one[1]):
        if left <= 0:
            break
        chosen.append((ask, weight))
        left -= weight
    total = sum(weight for _, weight in chosen)
    return Mix(tuple((ask, weight / total) for ask, weight in chosen))

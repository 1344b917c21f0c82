"""Traces that are made up: nodes and pods like those of a real cluster, from a seed.

Seven models of nodes, from two cards with much CPU to eight cards with little; pods with a few
frequent sizes and a long tail. A mix says what part of all GPUs its shares and its pods of several
GPUs ask for, how many pods want no GPU, how many name models, and how much CPU they take.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from gpumanager.placement.values import FreeNode, PodRequest
from gpumanager.sim.trace.loader import idle_node, requests_for
from gpumanager.sim.trace.workload import MILLI_PER_GPU, TracePod


@dataclass(frozen=True, slots=True)
class SyntheticMix:
    """Parts from 0 to 1.

    shared, several: of all GPUs asked for. cpu_only: of all pods. constrained: of pods with GPUs.
    cpu: how much CPU a pod takes, 1 is usual.
    """

    shared: float = 0.3
    several: float = 0.1
    cpu_only: float = 0.12
    constrained: float = 0.0
    cpu: float = 1.0


MIXES: Final = MappingProxyType(
    {
        "mixed": SyntheticMix(),
        "shared": SyntheticMix(shared=0.8, several=0.02),
        "several": SyntheticMix(shared=0.1, several=0.6),
        "constrained": SyntheticMix(constrained=0.25),
        "cpu-heavy": SyntheticMix(cpu_only=0.25, cpu=1.3),
    }
)


@dataclass(frozen=True, slots=True)
class TraceNodeKind:
    """A model of node. part: how many of all nodes."""

    model: str
    part: float
    gpus: int
    cpu_milli: int
    memory_mib: int


KINDS: Final = (
    TraceNodeKind("oak", 0.44, 8, 96_000, 393_216),
    TraceNodeKind("elm", 0.28, 2, 104_000, 524_288),
    TraceNodeKind("ash", 0.12, 2, 20_000, 131_072),
    TraceNodeKind("fir", 0.06, 8, 128_000, 786_432),
    TraceNodeKind("yew", 0.05, 4, 32_000, 131_072),
    TraceNodeKind("bay", 0.03, 8, 96_000, 786_432),
    TraceNodeKind("box", 0.02, 1, 64_000, 262_144),
)

SIZES: Final = 14
"""Sizes of shares that a trace has; each is half as frequent as those two before it."""

CPU_PER_GPU: Final = (4_000, 6_000, 8_000, 10_000, 12_000, 12_000, 16_000, 20_000)
CPU_OF_SHARE: Final = (2_000, 3_000, 4_000, 6_000, 8_000, 10_000)
CPU_ALONE: Final = (4_000, 8_000, 12_000, 16_000, 32_000)
MIB_PER_CPU: Final = (2_048, 3_072, 4_096)


def make_nodes(count: int, seed: int) -> tuple[FreeNode, ...]:
    chance = random.Random(f"nodes {seed}")  # noqa: S311 - repeatable, not secret
    kinds = chance.choices(KINDS, [kind.part for kind in KINDS], k=count)
    return tuple(
        idle_node(
            f"node-{number:05}",
            kind.model,
            kind.gpus,
            cpu_milli=kind.cpu_milli,
            memory_mib=kind.memory_mib,
        )
        for number, kind in enumerate(kinds)
    )


def make_pods(nodes: tuple[FreeNode, ...], mix: SyntheticMix, seed: int) -> tuple[TracePod, ...]:
    """Make pods that ask for nearly all GPUs of `nodes`."""
    made = PodGenerator(mix, seed)
    capacity = sum(len(node.gpus) for node in nodes) * MILLI_PER_GPU
    return tuple(made.until(capacity))


class PodGenerator:
    """Draws pods of a mix. The shapes are drawn first, so that they recur as real ones do."""

    def __init__(self, mix: SyntheticMix, seed: int) -> None:
        self._mix = mix
        self._chance = random.Random(f"pods {seed}")  # noqa: S311 - repeatable, not secret
        sizes = self._chance.sample(range(5, 96), SIZES)
        self._shares = [self._shape(1, 10 * size) for size in sizes]
        self._ones = [self._shape(1, MILLI_PER_GPU) for _ in range(SIZES)]
        self._several = [self._shape(gpus, MILLI_PER_GPU) for gpus in (2, 2, 4, 4, 8, 8)]
        self._alone = [self._shape(0, 0) for _ in range(len(CPU_ALONE))]

    def until(self, capacity_milli: int) -> Iterator[TracePod]:
        """Yield pods until they ask for so much."""
        mix, chance = self._mix, self._chance
        # Kinds are as frequent as their part of the GPUs over what one of them asks for.
        kinds = (self._shares, self._ones, self._several)
        parts = (mix.shared / 0.45, 1 - mix.shared - mix.several, mix.several / 4.7)
        asked = number = 0
        while asked < capacity_milli:
            alone = chance.random() < mix.cpu_only
            shapes = self._alone if alone else chance.choices(kinds, parts)[0]
            weights = [2.0 ** (-place / 2) for place in range(len(shapes))]
            ask, milli = chance.choices(shapes, weights)[0]
            asked += milli
            if ask.requests and chance.random() < mix.constrained:
                gpus = max(1, ask.requests[0].whole_gpus)
                able = [kind for kind in KINDS if kind.gpus >= gpus]
                wanted = chance.choices(able, [kind.part * kind.gpus for kind in able], k=2)
                ask = replace(ask, models=frozenset(kind.model for kind in wanted))
            yield TracePod(f"pod-{number:06}", ask, milli)
            number += 1

    def _shape(self, gpus: int, milli: int) -> tuple[PodRequest, int]:
        if not gpus:
            cpu = self._chance.choice(CPU_ALONE)
        elif milli < MILLI_PER_GPU:
            cpu = self._chance.choice(CPU_OF_SHARE)
        else:
            cpu = gpus * self._chance.choice(CPU_PER_GPU if gpus == 1 else CPU_PER_GPU[:5])
        cpu = int(cpu * self._mix.cpu)
        memory = cpu * self._chance.choice(MIB_PER_CPU) // 1000
        return PodRequest(requests_for(gpus, milli), cpu, memory), gpus * milli

"""Traces of a GPU cluster: read as published in 2023, made up from a seed, and put in order.

    pods   name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,…
    nodes  sn,cpu_milli,memory_mib,gpu,model

Columns are found by their names; others are passed over. `gpu_milli` is of each GPU, and less than
1000 only where one GPU is asked. `gpu_spec` is `A|B`: models that will do; empty for any. A request
has its part of a GPU in hundredths, rounded up; what is allocated is counted in the thousandths.

As the published experiments do: all pods shuffled by the seed, then pods drawn from all of them
with replacement are appended until what is asked reaches the load; a load that is less than the
pods ask together takes the first of the shuffled ones.

Made-up traces have seven models of nodes, and pods with a few frequent sizes and a long tail.
"""

import csv
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from gpumanager.errors import InputError
from gpumanager.placement.values import FreeNode, PodRequest, Request, idle_gpu
from gpumanager.units import CORES_PER_GPU

Made = TypeVar("Made")

MILLI_PER_GPU: Final = 1000
LARGEST_NUMBER: Final = 2**53
"""No number of a trace is larger."""
MOST_GPUS: Final = 64


class TracePod(NamedTuple):
    """gpu_milli: over all its GPUs."""

    name: str
    ask: PodRequest
    gpu_milli: int


@dataclass(frozen=True, slots=True)
class Workload:
    """nodes: idle. pods: in the order in which they ask."""

    nodes: tuple[FreeNode, ...]
    pods: tuple[TracePod, ...]

    @property
    def capacity_milli(self) -> int:
        return sum(len(node.gpus) for node in self.nodes) * MILLI_PER_GPU


def arrange(
    nodes: Sequence[FreeNode], pods: Sequence[TracePod], load: float, seed: int
) -> Workload:
    """Order the pods; raises InputError. load: GPUs asked for in all, per GPU of the nodes."""
    wanted = load * Workload(tuple(nodes), ()).capacity_milli
    if not any(pod.gpu_milli for pod in pods):
        raise InputError("--pods", "no pod asks for a GPU, so no load can be reached")
    if not wanted:
        raise InputError("--nodes", "no node has a GPU")
    chance = random.Random(seed)  # noqa: S311 - repeatable, not secret
    shuffled = list(pods)
    chance.shuffle(shuffled)
    chosen: list[TracePod] = []
    asked = 0
    while asked < wanted:
        pod = shuffled[len(chosen)] if len(chosen) < len(shuffled) else chance.choice(pods)
        chosen.append(pod)
        asked += pod.gpu_milli
    return Workload(tuple(nodes), tuple(chosen))


def idle_node(name: str, model: str, gpus: int, *, cpu_milli: int, memory_mib: int) -> FreeNode:
    free = (idle_gpu(0),) * gpus  # nobody asks for memory of GPUs
    return FreeNode(name, model, free, cpu_milli, memory_mib, cpu_milli, memory_mib)


def requests_for(gpus: int, milli: int) -> tuple[Request, ...]:
    """Return what one container asks for. milli: of each GPU."""
    cores = gpus * -(-milli * CORES_PER_GPU // MILLI_PER_GPU)
    return (Request(cores),) if gpus else ()


def read_pods(path: Path) -> tuple[TracePod, ...]:
    """Read pods; raises InputError with file and line."""

    def pod(row: Mapping[str, str]) -> TracePod:
        gpus = _number(row, "num_gpu", MOST_GPUS)
        milli = _number(row, "gpu_milli", MILLI_PER_GPU) if gpus else 0
        if gpus and not milli:
            raise ValueError("gpu_milli is 0: a GPU is asked for, so write 1 to 1000")
        if gpus > 1 and milli != MILLI_PER_GPU:
            raise ValueError(f"gpu_milli is {milli}: of several GPUs each is whole, so write 1000")
        words = (word.strip() for word in row.get("gpu_spec", "").split("|"))
        cpu, memory = _number(row, "cpu_milli"), _number(row, "memory_mib")
        ask = PodRequest(requests_for(gpus, milli), cpu, memory, frozenset(filter(None, words)))
        return TracePod(row["name"], ask, gpus * milli)

    return _read(path, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"), pod)


def read_nodes(path: Path) -> tuple[FreeNode, ...]:
    """Read nodes; raises InputError with file and line."""

    def node(row: Mapping[str, str]) -> FreeNode:
        gpus, model = _number(row, "gpu", MOST_GPUS), row["model"].strip()
        cpu, memory = _number(row, "cpu_milli"), _number(row, "memory_mib")
        return idle_node(row["sn"], model, gpus, cpu_milli=cpu, memory_mib=memory)

    return _read(path, ("sn", "cpu_milli", "memory_mib", "gpu", "model"), node)


def _read(
    path: Path, columns: Sequence[str], make: Callable[[Mapping[str, str]], Made]
) -> tuple[Made, ...]:
    made = []
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            if missing := [name for name in columns if name not in (reader.fieldnames or ())]:
                raise InputError(path, f"no column {', '.join(missing)} in its header", line=1)
            for row in reader:
                cells = {key: value or "" for key, value in row.items() if key is not None}
                try:
                    made.append(make(cells))
                except ValueError as error:
                    raise InputError(path, str(error), line=reader.line_num) from error
    except csv.Error as error:
        raise InputError(path, f"not a CSV file: {error}", line=reader.reader.line_num) from error
    except OSError as error:
        raise InputError(path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise InputError(path, "not a text file in UTF-8") from error
    if not made:
        raise InputError(path, "has no rows below its header")
    return tuple(made)


def _number(row: Mapping[str, str], name: str, most: int = LARGEST_NUMBER) -> int:
    text = row[name].strip()
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_NUMBER))
    if not digits or int(text) > most:
        raise ValueError(f"{name} is {text[:30]!r}: write a whole number from 0 to {most}")
    return int(text)


class SyntheticMix(NamedTuple):
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


class TraceNodeKind(NamedTuple):
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
        idle_node(f"node-{number:05}", model, gpus, cpu_milli=cpu, memory_mib=memory)
        for number, (model, _, gpus, cpu, memory) in enumerate(kinds)
    )


def make_pods(nodes: tuple[FreeNode, ...], mix: SyntheticMix, seed: int) -> tuple[TracePod, ...]:
    """Make pods that ask for nearly all GPUs of `nodes`."""
    return tuple(_draw_pods(Workload(nodes, ()).capacity_milli, mix, seed))


def _draw_pods(capacity_milli: int, mix: SyntheticMix, seed: int) -> Iterator[TracePod]:
    chance = random.Random(f"pods {seed}")  # noqa: S311 - repeatable, not secret

    def shape(gpus: int, milli: int, cpus: Sequence[int]) -> tuple[PodRequest, int]:
        cpu = int(max(gpus, 1) * chance.choice(cpus) * mix.cpu)
        memory = cpu * chance.choice(MIB_PER_CPU) // 1000
        return PodRequest(requests_for(gpus, milli), cpu, memory), gpus * milli

    # The shapes are drawn first, so that they recur as real ones do.
    sizes = chance.sample(range(5, 96), SIZES)
    shares = [shape(1, 10 * size, CPU_OF_SHARE) for size in sizes]
    ones = [shape(1, MILLI_PER_GPU, CPU_PER_GPU) for _ in range(SIZES)]
    several = [shape(gpus, MILLI_PER_GPU, CPU_PER_GPU[:5]) for gpus in (2, 2, 4, 4, 8, 8)]
    alone = [shape(0, 0, CPU_ALONE) for _ in range(len(CPU_ALONE))]
    # Kinds are as frequent as their part of the GPUs over what one of them asks for.
    parts = (mix.shared / 0.45, 1 - mix.shared - mix.several, mix.several / 4.7)
    asked = number = 0
    while asked < capacity_milli:
        shapes = alone
        if chance.random() >= mix.cpu_only:
            shapes = chance.choices((shares, ones, several), parts)[0]
        weights = [2.0 ** (-place / 2) for place in range(len(shapes))]
        ask, milli = chance.choices(shapes, weights)[0]
        asked += milli
        if ask.requests and chance.random() < mix.constrained:
            able = [kind for kind in KINDS if kind.gpus >= max(1, ask.requests[0].whole_gpus)]
            wanted = chance.choices(able, [kind.part * kind.gpus for kind in able], k=2)
            ask = replace(ask, models=frozenset(kind.model for kind in wanted))
        yield TracePod(f"pod-{number:06}", ask, milli)
        number += 1

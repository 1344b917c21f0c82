"""The cluster page's rows: one line per node, and sums over all nodes. Pure.

A line is computed when its node has changed and the page is read; the sums are updated by the
difference. So ten thousand nodes cost only as much as those that changed since the last read.
"""

import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.scheduler.node import NodeState
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

NUMBERS: Final = re.compile(r"(\d+)")


class Amounts(NamedTuple):
    """Of GPUs, together. cores: percent of one; granted: granted to pods. free: whole GPUs that
    nobody has anything of; closed: cordoned or unhealthy. memory: bytes."""

    gpus: int = 0
    free: int = 0
    closed: int = 0
    cores_granted: int = 0
    memory: int = 0
    memory_granted: int = 0

    def plus(self, other: "Amounts", sign: int = 1) -> "Amounts":
        return Amounts(*[mine + sign * more for mine, more in zip(self, other, strict=True)])


class GpuLine(NamedTuple):
    """One GPU of a node. memory: bytes. pods: that hold some of it."""

    gpu: Gpu
    cores_granted: int
    memory_granted: int
    pods: int
    closed: bool

    @property
    def free(self) -> bool:
        return not (self.pods or self.cores_granted or self.closed)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node with GPUs, or with something wrong.

    node: as it was then. amounts: by product. total: of all its products. granted: part of its
    cores. text: what it is found by, in small letters: its name, its products, and who is on it.
    """

    node: NodeState
    amounts: Mapping[str, Amounts]
    total: Amounts
    granted: float
    text: str

    @property
    def pods(self) -> int:
        claims = self.node.offered.holders
        return len(self.node.holders) + len({(one.namespace, pod) for one in claims
                                             for pod in one.pods})  # fmt: skip


Place = tuple[list[tuple[int, str]], str]
"""Where a line stands among the others: by its node's name as people count, then as it is."""


@dataclass(slots=True)
class Overview:
    """Lines by node, and their sums by product. One owner.

    nodes: how many have GPUs of which product.
    """

    lines: dict[str, NodeLine] = field(default_factory=dict)
    models: dict[str, Amounts] = field(default_factory=dict)
    nodes: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    order: list[Place] = field(default_factory=list)
    """By name, node-9 before node-10."""

    def tells(self, name: str, node: NodeState | None) -> bool:
        """Return whether its line is of the node as this value."""
        line = self.lines.get(name)
        return line.node is node if line else not _matters(node)

    def put(self, name: str, node: NodeState | None) -> None:
        """Update a node's line; None, or a node without GPUs, has none."""
        before = self.lines.get(name)
        after = line_of(node) if node and _matters(node) else None
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)
            self.lines[name] = after
            if before is None:
                insort(self.order, (_natural(name), name))
        elif before is not None:
            del self.lines[name]
            del self.order[bisect_left(self.order, (_natural(name), name))]

    @property
    def total(self) -> Amounts:
        return _sum(self.models)

    def _count(self, line: NodeLine, sign: int) -> None:
        self.pods += sign * line.pods
        for model, amounts in line.amounts.items():
            self.nodes[model] += sign
            self.models[model] = self.models.get(model, NO_AMOUNTS).plus(amounts, sign)
            if not self.nodes[model]:
                del self.nodes[model], self.models[model]


def _matters(node: NodeState | None) -> bool:
    return node is not None and bool(node.topology.gpus or node.trouble)


def line_of(node: NodeState) -> NodeLine:
    amounts: dict[str, Amounts] = {}
    for one in gpu_lines(node):
        gpu, cores, memory, _, closed = one
        more = Amounts(1, one.free, closed, cores, gpu.memory, memory)
        amounts[gpu.model] = amounts.get(gpu.model, NO_AMOUNTS).plus(more)
    total = next(iter(amounts.values())) if len(amounts) == 1 else _sum(amounts)
    granted = total.cores_granted / total.gpus if total.gpus else 0.0
    who = [f"{one.namespace}/{one.name}" for one in node.holders.values()]
    for claim in node.offered.holders:
        who += [claim.claim, *(f"{claim.namespace}/{pod}" for pod in claim.pods)]
    return NodeLine(node, amounts, total, granted, "\n".join((node.name, *amounts, *who)).lower())


def gpu_lines(node: NodeState) -> Iterator[GpuLine]:
    """Yield a line for each GPU. A closed one has nothing free in the books: what is granted there
    is read from the holders whose GPUs are known."""
    held: dict[int, tuple[int, int]] = {}
    for holder in node.holders.values() if node.closed else ():
        for place, (cores, memory, _) in holder.packing.uses.items() if holder.packing else ():
            before = held.get(place, (0, 0))
            held[place] = (before[0] + cores, before[1] + memory)
    claimed: dict[GpuUUID, tuple[int, int, int]] = {}  # cores, blocks and claims
    for claim in node.offered.holders:
        for uuid, cores, blocks in claim.uses:
            had = claimed.get(uuid, (0, 0, 0))
            claimed[uuid] = (had[0] + cores, had[1] + blocks, had[2] + 1)
    for place, gpu in enumerate(node.topology.gpus):
        free, closed = node.gpus[place], gpu.uuid in node.closed
        cores, memory = CORES_PER_GPU - free.cores, free.memory - free.blocks
        if closed:
            cores, memory = held.get(place, (0, 0))
        more = claimed.get(gpu.uuid, (0, 0, 0))
        granted = (memory + more[1]) * MEMORY_BLOCK
        yield GpuLine(gpu, cores + more[0], granted, free.processes + more[2], closed)


NO_AMOUNTS: Final = Amounts()


def _sum(amounts: Mapping[str, Amounts]) -> Amounts:
    total = NO_AMOUNTS
    for one in amounts.values():
        total = total.plus(one)
    return total


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key: node-9 before node-10."""
    words = NUMBERS.split(name)
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]

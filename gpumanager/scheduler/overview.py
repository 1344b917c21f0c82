"""The cluster for people: sums over all nodes, and some of the nodes one by one. Pure.

A line about a node is worked out when the node has changed and somebody looks, and sums are kept by
what a line adds to them: ten thousand nodes cost what those cost that have changed since the last
look. Whoever looks is given a page of lines that match, never all of them.
"""

import re
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Final

from gpumanager.gpu.values import Gpu
from gpumanager.kubelet.pods import PodUID
from gpumanager.scheduler.node import NodeState
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, blocks

SORTS: Final = ("name", "granted", "free")
NUMBERS: Final = re.compile(r"(\d+)")
KINDS: Final = 4096


@dataclass(frozen=True, slots=True)
class Amounts:
    """Of GPUs, together. cores: percent of one; granted: promised to pods. free: whole GPUs that
    nobody has anything of; closed: cordoned or unhealthy."""

    gpus: int = 0
    free: int = 0
    closed: int = 0
    cores_granted: int = 0
    memory: int = 0
    memory_granted: int = 0

    def plus(self, other: "Amounts", sign: int = 1) -> "Amounts":
        return Amounts(
            self.gpus + sign * other.gpus,
            self.free + sign * other.free,
            self.closed + sign * other.closed,
            self.cores_granted + sign * other.cores_granted,
            self.memory + sign * other.memory,
            self.memory_granted + sign * other.memory_granted,
        )


@dataclass(frozen=True, slots=True)
class GpuLine:
    """One GPU of a node. memory: bytes. pods: that hold some of it."""

    gpu: Gpu
    cores_granted: int
    memory_granted: int
    pods: int
    closed: bool


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node with GPUs, or with something wrong.

    node: as it was then. amounts: by product. granted: part of its cores. text: what it is found
    by, in small letters: its name, its products, and who is on it.
    """

    node: NodeState
    amounts: Mapping[str, Amounts]
    granted: float
    text: str

    @property
    def pods(self) -> int:
        return len(self.node.holders)


Names = Callable[[PodUID], str]
"""Namespace and name of a pod that is bound; empty where they are not known."""


@dataclass(slots=True)
class Overview:
    """Lines by node, and their sums by product. One owner. names: asked when a line is made."""

    names: Names
    lines: dict[str, NodeLine] = field(default_factory=dict)
    models: dict[str, Amounts] = field(default_factory=dict)
    nodes: Counter[str] = field(default_factory=Counter)
    """How many have GPUs of which product."""
    pods: int = 0
    _order: list[tuple[list[tuple[int, str]], str]] = field(default_factory=list)

    def put(self, name: str, node: NodeState | None) -> None:
        """A node is this now; None, or one without GPUs: there is nothing to tell of it."""
        before = self.lines.pop(name, None)
        if before is not None:
            self._count(before, -1)
        if node is not None and (node.topology.gpus or node.trouble):
            line = self.lines[name] = line_of(node, self.names)
            self._count(line, 1)
        if (before is None) != (name not in self.lines):
            self._place(name)

    @property
    def total(self) -> Amounts:
        total = Amounts()
        for one in self.models.values():
            total = total.plus(one)
        return total

    def in_order(self) -> Sequence[NodeLine]:
        """By name, node-9 before node-10."""
        return [self.lines[name] for _, name in self._order]

    def _place(self, name: str) -> None:
        """It is new, or gone."""
        key = (_natural(name), name)
        if name in self.lines:
            insort(self._order, key)
        else:
            self._order.remove(key)

    def _count(self, line: NodeLine, sign: int) -> None:
        self.pods += sign * line.pods
        for model, amounts in line.amounts.items():
            self.nodes[model] += sign
            self.models[model] = self.models.get(model, Amounts()).plus(amounts, sign)
            if not self.nodes[model]:
                del self.nodes[model], self.models[model]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody looks for. page: from 1. per_page: lines."""

    search: str = ""
    sort: str = "name"
    page: int = 1
    per_page: int = 25


@dataclass(frozen=True, slots=True)
class Found:
    """matches: how many lines there are in all; page: the one that is shown, of `pages`."""

    lines: tuple[NodeLine, ...]
    matches: int
    page: int
    pages: int


def find(lines: Sequence[NodeLine], wanted: Wanted) -> Found:
    """lines: by name. A page beyond the last is the last."""
    word = wanted.search.strip().lower()
    matching = [line for line in lines if word in line.text] if word else lines
    if wanted.sort != "name":
        fullest = wanted.sort == "granted"
        matching = sorted(matching, key=attrgetter("granted"), reverse=fullest)
    pages = max(1, -(-len(matching) // wanted.per_page))
    page = min(wanted.page, pages)
    begin = (page - 1) * wanted.per_page
    shown = tuple(matching[begin : begin + wanted.per_page])
    return Found(shown, len(matching), page, pages)


def line_of(node: NodeState, names: Names) -> NodeLine:
    amounts: dict[str, Amounts] = {}
    for one in gpu_lines(node):
        amounts[one.gpu.model] = amounts.get(one.gpu.model, NOTHING).plus(_amounts(one))
    gpus = sum(one.gpus for one in amounts.values())
    cores = sum(one.cores_granted for one in amounts.values())
    who = (names(uid) or holder.namespace for uid, holder in node.holders.items())
    text = "\n".join((node.name, *amounts, *who)).lower()
    return NodeLine(node, amounts, cores / gpus if gpus else 0.0, text)


def gpu_lines(node: NodeState) -> Iterator[GpuLine]:
    """A GPU that is closed has nothing free in the books: what is granted there stands in who
    holds it."""
    held = _held(node)
    for place, gpu in enumerate(node.topology.gpus):
        book, closed = node.books.of(gpu), gpu.uuid in node.closed
        cores, memory = CORES_PER_GPU - book.free_cores, blocks(gpu.memory) - book.free_blocks
        if closed:
            cores, memory = held.get(place, (0, 0))
        yield GpuLine(gpu, cores, memory * MEMORY_BLOCK, book.processes, closed)


NOTHING: Final = Amounts()


def _amounts(one: GpuLine) -> Amounts:
    return _same(
        Amounts(
            gpus=1,
            free=int(not (one.pods or one.cores_granted or one.closed)),
            closed=int(one.closed),
            cores_granted=one.cores_granted,
            memory=one.gpu.memory,
            memory_granted=one.memory_granted,
        )
    )


@lru_cache(maxsize=KINDS)
def _same(amounts: Amounts) -> Amounts:
    """Few states of a GPU recur on all nodes."""
    return amounts


def _held(node: NodeState) -> dict[int, tuple[int, int]]:
    """Cores and blocks by position, of those whose GPUs are known; only for closed GPUs."""
    found: dict[int, tuple[int, int]] = {}
    for holder in node.holders.values() if node.closed else ():
        for place, (cores, memory, _) in holder.packing.uses.items() if holder.packing else ():
            before = found.get(place, (0, 0))
            found[place] = (before[0] + cores, before[1] + memory)
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """node-9 before node-10."""
    words = NUMBERS.split(name)
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]

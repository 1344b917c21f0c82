"""Which rows are shown, in which order: sorted, filtered, folded as the reader wishes. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, TypeVar

from gpumanager.view.node import ContainerRow, GpuRow, Seen

_T = TypeVar("_T")


class Sort(Enum):
    """What rows are ordered by; the value is said to the reader."""

    PLACE = "GPU and name"
    MEMORY = "memory"
    SHARE = "share"
    WAIT = "throttled"
    REFUSALS = "refusals"


@dataclass(frozen=True, slots=True)
class Row:
    """One line: a node (no gpu), a GPU of it (no container), or a container on that GPU.

    key: the same at every look. folded: rows below it are not shown. last: of its GPU. flat: it
    stands beside containers of other GPUs.
    """

    key: str
    seen: Seen
    gpu: GpuRow | None = None
    container: ContainerRow | None = None
    folded: bool = False
    last: bool = False
    flat: bool = False


@dataclass(frozen=True, slots=True)
class Wish:
    """What the reader wants to see.

    needle: rows with these letters, and those they belong to. folded: keys of rows that are closed.
    flat: containers alone, beside each other. idle: GPUs that nobody has, too.
    """

    sort: Sort = Sort.PLACE
    turned: bool = False
    needle: str = ""
    folded: frozenset[str] = field(default_factory=frozenset)
    flat: bool = False
    idle: bool = True

    def fold(self, key: str) -> "Wish":
        """Close a row, or open it again."""
        return replace(self, folded=self.folded ^ {key})

    def by(self, sort: Sort) -> "Wish":
        """Sort by this; chosen a second time, the order is reversed."""
        return replace(self, sort=sort, turned=sort is self.sort and not self.turned)

    def next(self, step: int) -> "Wish":
        every = tuple(Sort)
        return replace(self, sort=every[(every.index(self.sort) + step) % len(every)], turned=False)


def _throttled(row: ContainerRow) -> float:
    """Return the rate; where only one look is known, the sum since it started."""
    return (row.throttled_seconds if row.throttled is None else row.throttled) or 0


CONTAINER_ORDER: Final[dict[Sort, Callable[[ContainerRow], float]]] = {
    Sort.MEMORY: lambda row: row.held or 0,
    Sort.SHARE: lambda row: row.taken or 0,
    Sort.WAIT: _throttled,
    Sort.REFUSALS: lambda row: row.refusals or 0,
}
GPU_ORDER: Final[dict[Sort, Callable[[GpuRow], float]]] = {
    Sort.MEMORY: lambda gpu: gpu.memory_used or 0,
    Sort.SHARE: lambda gpu: gpu.busy or 0,
    Sort.WAIT: lambda gpu: sum(_throttled(row) for row in gpu.containers),
    Sort.REFUSALS: lambda gpu: sum(row.refusals or 0 for row in gpu.containers),
}
"""Most comes first; by place, they stay as the agent has them."""


def rows(nodes: Sequence[Seen], wish: Wish) -> tuple[Row, ...]:
    """Return what is shown. Nodes have rows of their own only where there are several."""
    named, order = len(nodes) > 1, CONTAINER_ORDER.get(wish.sort)
    if wish.flat:
        found = [
            (Row(f"{_key(seen, gpu)} {one.name}", seen, gpu, one, flat=True), one)
            for seen in nodes
            for gpu in (seen.node.gpus if seen.node else ())
            for one in gpu.containers
            if _has(wish, f"{_words(one)} GPU{gpu.index} {gpu.model} {seen.name}")
        ]
        return tuple(row for row, _ in _sorted(found, order and (lambda it: order(it[1])), wish))
    shown: list[Row] = []
    for seen in nodes:
        gpus = [gpu for gpu in (seen.node.gpus if seen.node else ()) if wish.idle or gpu.containers]
        below: list[Row] = []
        for gpu in _sorted(gpus, GPU_ORDER.get(wish.sort), wish):
            itself = _has(wish, f"GPU{gpu.index} {gpu.model} {gpu.uuid} {seen.name}")
            ordered = _sorted(gpu.containers, order, wish)
            inside = [one for one in ordered if itself or _has(wish, _words(one))]
            if not itself and not inside:
                continue
            key = _key(seen, gpu)
            folded = key in wish.folded
            below.append(Row(key, seen, gpu, folded=folded))
            below += [
                Row(f"{key} {one.name}", seen, gpu, one, last=one is inside[-1])
                for one in (() if folded else inside)
            ]
        folded = named and seen.agent in wish.folded
        if named and (below or not wish.needle or _has(wish, seen.name)):
            shown.append(Row(seen.agent, seen, folded=folded))
        shown += () if folded else below
    return tuple(shown)


def _sorted(found: Sequence[_T], order: Callable[[_T], float] | None, wish: Wish) -> Sequence[_T]:
    if order is None:
        return found[::-1] if wish.turned else found
    return sorted(found, key=order, reverse=not wish.turned)


def _key(seen: Seen, gpu: GpuRow) -> str:
    return f"{seen.agent} {gpu.uuid}"


def _words(row: ContainerRow) -> str:
    """Return what it is found by."""
    return f"{row.name} {row.claim[0]}" if row.claim else row.name


def _has(wish: Wish, text: str) -> bool:
    return wish.needle.casefold() in text.casefold()

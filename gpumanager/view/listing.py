"""Which rows are shown, in which order: sorted, filtered, folded as the reader wishes. Pure."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from gpumanager.view.values import ContainerRow, GpuRow, Seen


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
        """Close it, or open it again."""
        return replace(self, folded=self.folded ^ {key})

    def by(self, sort: Sort) -> "Wish":
        """Chosen a second time it is turned round."""
        return replace(self, sort=sort, turned=sort is self.sort and not self.turned)

    def next(self, step: int) -> "Wish":
        every = tuple(Sort)
        return replace(self, sort=every[(every.index(self.sort) + step) % len(every)], turned=False)


def _throttled(row: ContainerRow) -> float:
    """Now; where only one look is known, since it started."""
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
    """Nodes have rows of their own only where there are several."""
    named = len(nodes) > 1
    if wish.flat:
        return tuple(_flat(nodes, wish))
    return tuple(row for one in nodes for row in _node(one, wish, named=named))


def _node(seen: Seen, wish: Wish, *, named: bool) -> Iterator[Row]:
    key = seen.agent
    folded = named and key in wish.folded
    below = [row for gpu in _gpus(seen, wish) for row in _gpu(seen, gpu, wish)]
    if named and (below or not wish.needle or _has(wish, seen.name)):
        yield Row(key, seen, folded=folded)
    if not folded:
        yield from below


def _gpus(seen: Seen, wish: Wish) -> Sequence[GpuRow]:
    gpus = seen.node.gpus if seen.node else ()
    shown = [gpu for gpu in gpus if wish.idle or gpu.containers]
    order = GPU_ORDER.get(wish.sort)
    if order is None:
        return shown[::-1] if wish.turned else shown
    return sorted(shown, key=order, reverse=not wish.turned)


def _gpu(seen: Seen, gpu: GpuRow, wish: Wish) -> Iterator[Row]:
    itself = _has(wish, f"GPU{gpu.index} {gpu.model} {gpu.uuid} {seen.name}")
    inside = [row for row in _ordered(gpu.containers, wish) if itself or _has(wish, _words(row))]
    if not itself and not inside:
        return
    key = _key(seen, gpu)
    folded = key in wish.folded
    yield Row(key, seen, gpu, folded=folded)
    for row in () if folded else inside:
        yield Row(f"{key} {row.name}", seen, gpu, row, last=row is inside[-1])


def _ordered(containers: Sequence[ContainerRow], wish: Wish) -> Sequence[ContainerRow]:
    order = CONTAINER_ORDER.get(wish.sort)
    if order is None:
        return containers[::-1] if wish.turned else containers
    return sorted(containers, key=order, reverse=not wish.turned)


def _flat(nodes: Sequence[Seen], wish: Wish) -> Iterator[Row]:
    found = [
        Row(f"{_key(seen, gpu)} {row.name}", seen, gpu, row, flat=True)
        for seen in nodes
        for gpu in (seen.node.gpus if seen.node else ())
        for row in gpu.containers
        if _has(wish, f"{_words(row)} GPU{gpu.index} {gpu.model} {seen.name}")
    ]
    order = CONTAINER_ORDER.get(wish.sort)
    if order is None:
        yield from reversed(found) if wish.turned else found
        return
    yield from sorted(found, key=lambda row: _of(row, order), reverse=not wish.turned)


def _of(row: Row, order: Callable[[ContainerRow], float]) -> float:
    return order(row.container) if row.container else 0.0


def _key(seen: Seen, gpu: GpuRow) -> str:
    return f"{seen.agent} {gpu.uuid}"


def _words(row: ContainerRow) -> str:
    """What it is found by."""
    return f"{row.name} {row.claim[0]}" if row.claim else row.name


def _has(wish: Wish, text: str) -> bool:
    return wish.needle.casefold() in text.casefold()

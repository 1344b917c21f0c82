"""Which rows are shown, in which order: sorted, filtered, folded as the reader wishes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from gpumanager.view.node import ContainerRow, DeviceRow, GpuRow, Seen


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

    key: the same at every look. device: what the container has of the GPU. folded: rows below it
    are not shown. last: of its GPU. flat: it stands beside containers of other GPUs.
    """

    key: str
    seen: Seen
    gpu: GpuRow | None = None
    container: ContainerRow | None = None
    device: DeviceRow | None = None
    folded: bool = False
    last: bool = False
    flat: bool = False

    @property
    def words(self) -> str:
        """What a container is found by."""
        return f"{self.container.name} {self.container.claim or ''}" if self.container else ""

    @property
    def place(self) -> tuple[str, ...]:
        """What its GPU is found by."""
        gpu = self.gpu
        return (f"GPU{gpu.index}", gpu.model, gpu.uuid, self.seen.name) if gpu else ()


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

    def has(self, *texts: object) -> bool:
        """Return whether what it looks for is in one of these, or between two."""
        return self.needle.casefold() in " ".join(map(str, texts)).casefold()

    def sorted(self, found: Sequence[Row]) -> Sequence[Row]:
        """Return them, most first; by place, they stay as the agent has them."""
        if self.sort is Sort.PLACE:
            return found[::-1] if self.turned else found
        return sorted(found, key=self._amount, reverse=not self.turned)

    def _amount(self, row: Row) -> float:
        gpu, node = row.gpu, row.seen.node
        on_gpu = node.on(gpu) if node and gpu and not row.device else ()
        devices = [row.device] if row.device else [device for _, device in on_gpu]
        match self.sort:
            case Sort.MEMORY:
                return (row.device.held if row.device else gpu and gpu.memory_used_bytes) or 0
            case Sort.SHARE:
                return (row.device.taken if row.device else gpu and gpu.utilization_percent) or 0
            case Sort.REFUSALS:
                return sum(one.memory_refusals or 0 for one in devices)
        # The rate; where only one look is known, the sum since it started.
        return sum(
            (one.throttled_seconds if one.throttled is None else one.throttled) or 0
            for one in devices
        )


def rows(nodes: Sequence[Seen], wish: Wish) -> tuple[Row, ...]:
    """Return what is shown. Nodes have rows of their own only where there are several."""
    if wish.flat:
        every = (_on(seen, gpu, flat=True) for seen in nodes for gpu in seen.gpus)
        found = [row for one in every for row in one if wish.has(row.words, *row.place)]
        return tuple(wish.sorted(found))
    shown: list[Row] = []
    for seen in nodes:
        below: list[Row] = []
        for row in wish.sorted([Row(f"{seen.agent} {gpu.uuid}", seen, gpu) for gpu in seen.gpus]):
            on_gpu = _on(seen, row.gpu)
            itself = wish.has(*row.place)
            inside = [one for one in wish.sorted(on_gpu) if itself or wish.has(one.words)]
            if (itself or inside) and (wish.idle or on_gpu):
                folded = row.key in wish.folded
                below.append(replace(row, folded=folded))
                below += [] if folded else inside[:-1]
                below += [replace(one, last=True) for one in inside[-1:] if not folded]
        named = len(nodes) > 1
        folded = named and seen.agent in wish.folded
        if named and (below or not wish.needle or wish.has(seen.name)):
            shown.append(Row(seen.agent, seen, folded=folded))
        shown += () if folded else below
    return tuple(shown)


def _on(seen: Seen, gpu: GpuRow | None, *, flat: bool = False) -> list[Row]:
    """Return the containers on a GPU."""
    on_gpu = seen.node.on(gpu) if seen.node and gpu else ()
    return [
        Row(f"{seen.agent} {device.uuid} {one.name}", seen, gpu, one, device, flat=flat)
        for one, device in on_gpu
    ]

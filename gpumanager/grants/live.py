"""The promises in force, as a tuple in the journal's order that also finds some of them fast.

By GPU, by what the device IDs name, and by admission: an Allocate is about one container and one
GPU, and a node may have hundreds of containers. A new one is made of the one before and what has
changed, and shares the rest with it. Pure: what is asked here a plain tuple answers as well.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.journal import Allocation, Journal, differences
from gpumanager.virtual.values import AllocationID

K = TypeVar("K", bound=Hashable)

Index = Mapping[K, tuple[Allocation, ...]]
Keys = Callable[[Allocation], Iterable[K]]
"""Under which an index has an allocation."""


class Live(tuple[Allocation, ...]):  # noqa: SLOT001 - a tuple has no room for them
    """Those of `journal` that hold something."""

    journal: Journal
    order: Mapping[AllocationID, int]
    """Who comes before whom, also of those that hold nothing."""
    on: Index[GpuUUID]
    named: Index[str]
    """By the beginnings of their device IDs, which name GPUs, whether they are here or not."""
    admitted: Index[str]

    @classmethod
    def of(cls, journal: Journal) -> "Live":
        return _EMPTY.follow(journal)

    def follow(self, journal: Journal) -> "Live":
        """What is in force now. The journal only grew at its end, and lost some."""
        old, new = differences(self.journal, journal)
        found = Live(journal.live())
        found.journal = journal
        found.order = order = _ordered(self.order, old, new)
        gone, come = [a for a in old if not a.released], [a for a in new if not a.released]
        found.on = _changed(self.on, _gpus, gone, come, order)
        found.named = _changed(self.named, _names, gone, come, order)
        found.admitted = _changed(self.admitted, _admission, gone, come, order)
        return found


@dataclass(frozen=True, slots=True)
class Others:
    """All of them but one."""

    live: Live
    name: AllocationID

    def __iter__(self) -> Iterator[Allocation]:
        return (one for one in self.live if one.allocation != self.name)

    def on_gpu(self, gpu: GpuUUID) -> Iterable[Allocation]:
        return [one for one in self.live.on.get(gpu, ()) if one.allocation != self.name]


def on_gpu(live: Iterable[Allocation], gpu: GpuUUID) -> Iterable[Allocation]:
    """Those that have some of it."""
    if isinstance(live, Live):
        return live.on.get(gpu, ())
    if isinstance(live, Others):
        return live.on_gpu(gpu)
    return [one for one in live if gpu in one.gpus]


def naming(live: Iterable[Allocation], ids: Iterable[str]) -> Iterable[Allocation]:
    """All that may hold one of `ids`, and some that do not."""
    if not isinstance(live, Live):
        return live
    names = {_name(one) for one in ids}
    if len(names) == 1:
        return live.named.get(names.pop(), ())
    found = {one.allocation: one for name in names for one in live.named.get(name, ())}
    return sorted(found.values(), key=lambda one: live.order[one.allocation])


def of_admission(live: Iterable[Allocation], admission: str) -> Iterable[Allocation]:
    if isinstance(live, Live):
        return live.admitted.get(admission, ())
    return [one for one in live if one.admission == admission]


def without(live: tuple[Allocation, ...], name: AllocationID) -> Iterable[Allocation]:
    """All others."""
    if isinstance(live, Live):
        return Others(live, name) if name in live.order else live
    return tuple(one for one in live if one.allocation != name)


def _gpus(one: Allocation) -> Iterable[GpuUUID]:
    return one.gpus


def _names(one: Allocation) -> set[str]:
    return {_name(device_id) for device_id in (*one.core_ids, *one.memory_ids)}


def _name(device_id: str) -> str:
    return device_id.partition("-")[0]


def _admission(one: Allocation) -> tuple[str]:
    return (one.admission,)


def _ordered(
    before: Mapping[AllocationID, int], old: list[Allocation], new: list[Allocation]
) -> Mapping[AllocationID, int]:
    """Who was there keeps its place, who comes is the last."""
    order = dict(before)
    for name in {a.allocation for a in old} - {a.allocation for a in new}:
        del order[name]
    last = next(reversed(order.values()), 0)
    for place, one in enumerate(new, last + 1):
        order.setdefault(one.allocation, place)
    return order


def _changed(
    index: Index[K],
    keys: Keys[K],
    gone: list[Allocation],
    come: list[Allocation],
    order: Mapping[AllocationID, int],
) -> Index[K]:
    changed = dict(index)
    for key, (less, more) in _by_key(keys, gone, come).items():
        kept = [one for one in changed.get(key, ()) if one.allocation not in less]
        rest = sorted((*kept, *more), key=lambda one: order[one.allocation])
        changed[key] = tuple(rest)
        if not rest:
            del changed[key]
    return changed


def _by_key(
    keys: Keys[K], gone: list[Allocation], come: list[Allocation]
) -> Mapping[K, tuple[set[AllocationID], list[Allocation]]]:
    """Who leaves each entry, and who joins it."""
    found: defaultdict[K, tuple[set[AllocationID], list[Allocation]]]
    found = defaultdict(lambda: (set(), []))
    for one in gone:
        for key in keys(one):
            found[key][0].add(one.allocation)
    for one in come:
        for key in keys(one):
            found[key][1].append(one)
    return found


def _empty() -> Live:
    nobody = Live()
    nobody.journal, nobody.order = Journal(), {}
    nobody.on, nobody.named, nobody.admitted = {}, {}, {}
    return nobody


_EMPTY = _empty()

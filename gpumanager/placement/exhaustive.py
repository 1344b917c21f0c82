"""The best linked set, exactly, in milliseconds of plain Python.

All sets of one size are weighed, cleverly: members are cut into two halves of at most 8; the
quality of every subset of a half is known from the subset without its last member; so is the
quality between a subset of the low half and every subset of the high half, one `map(add, …)` each.
Of interchangeable members (all GPUs on one NVSwitch) only the lowest are tried, which loses
nothing, since the lowest indices win a tie. What ties on quality is compared on the rest.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import add

from gpumanager.placement.candidates import Candidates


@dataclass(frozen=True, slots=True)
class _Half:
    """Subsets of some members as bit masks, the small ones first; lists are by subset.

    top: its highest member. rest: where the subset without that member stands; None of both for
    the empty subset, which stands first. sizes: how many members it has.
    """

    masks: list[int]
    top: list[int]
    rest: list[int]
    sizes: list[int]


@dataclass(frozen=True, slots=True)
class _Weighed:
    """One low subset with every high subset that fills it up.

    totals: quality of the union less that inside the low subset; the first is that of the high
    subset number `start`. most: the largest. best: with the quality inside the low subset.
    """

    mask: int
    start: int
    totals: list[int]
    most: int
    best: int


def best_set(candidates: Candidates, size: int) -> tuple[int, ...]:
    """The members of the best set of `size`, ascending; there are at least that many."""
    ties = _fewest_nodes(candidates, _closest(candidates, size))
    return min(ties, key=lambda members: (candidates.breakage(members), members))


def _fewest_nodes(
    candidates: Candidates, ties: Sequence[tuple[int, ...]]
) -> Sequence[tuple[int, ...]]:
    nodes = [candidates.numa_nodes(members) for members in ties]
    fewest = min(nodes)
    return [members for members, count in zip(ties, nodes, strict=True) if count == fewest]


@cache
def _members(mask: int) -> tuple[int, ...]:
    """Of a subset of one half: there are few, and many sets share them."""
    return tuple(member for member in range(mask.bit_length()) if mask >> member & 1)


def _closest(candidates: Candidates, size: int) -> list[tuple[int, ...]]:
    """All sets that have the largest total quality."""
    count = len(candidates.positions)
    low = _half(candidates, range(count // 2))
    high = _half(candidates, range(count // 2, count))
    weighed = list(_weigh(candidates, low, high, size))
    best = max(entry.best for entry in weighed)
    return [
        _members(entry.mask) + _members(high.masks[place])
        for entry in weighed
        if entry.best == best
        for place, total in enumerate(entry.totals, entry.start)
        if total == entry.most
    ]


def _half(candidates: Candidates, members: range) -> _Half:
    masks = [0]
    for member in members:
        twin = candidates.twin[member]
        needs = 1 << twin if twin is not None and twin in members else 0
        masks += [mask | 1 << member for mask in masks if mask & needs == needs]
    masks.sort(key=int.bit_count)
    place = {mask: number for number, mask in enumerate(masks)}
    top = [mask.bit_length() - 1 for mask in masks]
    rest = [
        place[mask & ~(1 << member)] if mask else 0 for mask, member in zip(masks, top, strict=True)
    ]
    return _Half(masks, top, rest, [mask.bit_count() for mask in masks])


def _weigh(candidates: Candidates, low: _Half, high: _Half, size: int) -> Iterator[_Weighed]:
    """Every set of `size`. rows: of a low subset, the totals with each high one in question."""
    within = _within(candidates, low)
    between = {member: _reach(candidates, member, high) for member in set(low.top[1:])}
    rows = [_within(candidates, high)]
    for place, mask in enumerate(low.masks):
        missing = size - low.sizes[place]
        if missing < 0:
            return
        start, end = bisect_left(high.sizes, missing), bisect_right(high.sizes, missing)
        if mask:
            rows.append(list(map(add, rows[low.rest[place]], between[low.top[place]][:end])))
        if start < end:
            totals = rows[place][start:end]
            most = max(totals)
            yield _Weighed(mask, start, totals, most, most + within[place])


def _reach(candidates: Candidates, member: int, half: _Half) -> list[int]:
    """The quality between one member and each subset."""
    quality = candidates.quality[member]
    reach = [0]
    for top, rest in zip(half.top[1:], half.rest[1:], strict=True):
        reach.append(reach[rest] + quality[top])
    return reach


def _within(candidates: Candidates, half: _Half) -> list[int]:
    """The quality inside each subset."""
    reach = {member: _reach(candidates, member, half) for member in set(half.top[1:])}
    within = [0]
    for top, rest in zip(half.top[1:], half.rest[1:], strict=True):
        within.append(within[rest] + reach[top][rest])
    return within

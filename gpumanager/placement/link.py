"""Several whole GPUs: the best linked set.

Among all sets of free GPUs that are large enough: the largest total quality of their bonds; then
the fewest NUMA nodes; then the least breakage, which is the descending list of qualities from the
members to the free GPUs that remain, smallest first; then the lowest indices.

Exact for up to 16 candidates. Beyond that (no PCIe machine of today) the same objective decides
between the sets that a greedy growth from every kind of GPU reaches.

Breakage is a list that is compared from its best quality down. Lists of one length compare like
the counts of each quality, best first, and counts compare like one integer whose digits they are;
so a quality becomes a power of a base that no count reaches. That integer is a sum over bonds:
what a set breaks is what its members lose alone, less twice what stays inside the set.

Exact, in milliseconds of plain Python: all sets of one size are weighed, members being cut into two
halves of at most 8; the quality of every subset of a half is known from the subset without its last
member; so is the quality between a subset of the low half and every subset of the high half, one
`map(add, ...)` each. Of interchangeable members (all GPUs on one NVSwitch) only the lowest are
tried, which loses nothing, since the lowest indices win a tie. What ties on quality is compared on
the rest.

Greedy, for more GPUs than that: from every kind of GPU (twins start alike, so one of them starts) a
set grows by the GPU that adds the most quality, then by the one that adds no NUMA node, then by the
lowest. The grown sets are compared by the full objective. On uniform links this finds the optimum;
elsewhere it may miss it.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, islice
from operator import add, itemgetter
from typing import Final

from gpumanager.gpu.values import Topology
from gpumanager.placement.values import FreeGpus, GpuChoice, Refusal, Request
from gpumanager.placement.whole import free_positions, large_enough, refuse_whole
from gpumanager.units import count_of

EXACT_UP_TO: Final = 16
"""Candidates; 16 mean at most 12,870 sets."""


def link(topology: Topology, free_gpus: FreeGpus, request: Request) -> GpuChoice | Refusal:
    free = free_positions(topology, free_gpus)
    fitting = large_enough(topology, free, request)
    if len(fitting) < request.whole_gpus:
        return refuse_whole(topology, len(fitting), request)
    candidates = candidates_of(topology, free, fitting)
    search = best_set if len(fitting) <= EXACT_UP_TO else good_set
    chosen = [fitting[member] for member in search(candidates, request.whole_gpus)]
    gpus = tuple(topology.gpus[place] for place in chosen)
    return GpuChoice(request, gpus, _why(topology, chosen))


def _why(topology: Topology, chosen: Sequence[int]) -> str:
    bonds = [topology.bond(a, b) for a, b in combinations(chosen, 2)]
    names = Counter(str(bond) for bond in sorted(bonds, key=lambda bond: -bond.quality))
    if len(bonds) == 1:
        links = str(bonds[0])
    elif len(names) == 1:
        links = f"{bonds[0]} between every pair"
    else:
        links = ", ".join(f"{name} in {count_of(count, 'pair')}" for name, count in names.items())
    nodes = {topology.gpus[place].numa_node for place in chosen}
    spread = "one NUMA node" if len(nodes) == 1 else f"{len(nodes)} NUMA nodes"
    return f"best linked set: {links}, {'NUMA nodes unknown' if nodes == {None} else spread}"


MOST_STARTS: Final = 32
"""Keeps the work within starts times set size times GPUs, however large the machine."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Members are numbered 0, 1, … in the order of `positions`; tables are by member.

    positions: in the topology, ascending. quality: of each pair, 0 on the diagonal.
    numa: the bit of the NUMA node; unknown is one node. alone: breakage of the member by itself.
    digit: the breakage of each pair, 0 on the diagonal. reach: its sum for each member.
    twin: the next lower member that is interchangeable with this one, if any.
    """

    positions: tuple[int, ...]
    quality: tuple[tuple[int, ...], ...]
    numa: tuple[int, ...]
    alone: tuple[int, ...]
    digit: tuple[tuple[int, ...], ...]
    reach: tuple[int, ...]
    twin: tuple[int | None, ...]

    def numa_nodes(self, members: Sequence[int]) -> int:
        return len(set(itemgetter(*members)(self.numa)))

    def breakage(self, members: Sequence[int]) -> int:
        alone: int = sum(itemgetter(*members)(self.alone))
        if 2 * len(members) <= len(self.positions):
            return alone - _inside(self.digit, members)
        # A large set is summed by what it leaves out: all, less what the others have from both
        # sides. Example: 14 of 16 GPUs take the bonds of 2.
        inside = set(members)
        others = [member for member in range(len(self.positions)) if member not in inside]
        within = _inside(self.digit, others) if len(others) > 1 else 0
        return alone - sum(self.reach) + 2 * sum(self.reach[other] for other in others) - within

    def rank(self, members: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        """Return the objective: the smallest is the best. members: in ascending order."""
        quality = _inside(self.quality, members)  # every pair counts from both sides
        return -quality, self.numa_nodes(members), self.breakage(members), members


def _inside(table: Sequence[Sequence[int]], members: Sequence[int]) -> int:
    """Sum over all ordered pairs of at least two members, in C: ties may be thousands."""
    pick = itemgetter(*members)
    return sum(map(sum, map(pick, pick(table))))


def candidates_of(topology: Topology, free: Sequence[int], fitting: Sequence[int]) -> Candidates:
    """`free`: positions of all free GPUs; `fitting`: those of them that may be chosen."""
    table = [[0 if a == b else topology.bond(a, b).quality for b in free] for a in free]
    bits = len(free).bit_length() * 2  # no set breaks more bonds than len(free) squared
    levels = sorted({quality for row in table for quality in row if quality})
    digits = {0: 0} | {quality: 1 << bits * rank for rank, quality in enumerate(levels)}
    chosen = [free.index(place) for place in fitting]
    digit = [[digits[quality] for quality in table[a]] for a in chosen]
    among = tuple(tuple(row[b] for b in chosen) for row in digit)
    nodes = [topology.gpus[place].numa_node for place in fitting]
    known = list(dict.fromkeys(nodes))
    # Members alone on their NUMA node are alike in this: each costs one node of its own.
    like = [node if nodes.count(node) > 1 else "alone" for node in nodes]
    return Candidates(
        positions=tuple(fitting),
        quality=tuple(tuple(table[a][b] for b in chosen) for a in chosen),
        numa=tuple(1 << known.index(node) for node in nodes),
        alone=tuple(sum(row) for row in digit),
        digit=among,
        reach=tuple(map(sum, among)),
        twin=_twins([table[a] for a in chosen], chosen, like),
    )


def _twins(
    rows: Sequence[list[int]], columns: Sequence[int], nodes: Sequence[int | str | None]
) -> tuple[int | None, ...]:
    """Return for each member the next lower one with a like NUMA node and the same other bonds."""
    found: list[int | None] = [None] * len(rows)
    for member, row in enumerate(rows):
        for other in reversed(range(member)):
            if nodes[other] != nodes[member]:
                continue
            # Two rows are alike if they are equal once their owners change places.
            moved, own, theirs = list(rows[other]), columns[member], columns[other]
            moved[own], moved[theirs] = moved[theirs], moved[own]
            if row == moved:
                found[member] = other
                break
    return tuple(found)


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
    """Return the members of the best set of `size`, ascending; there are at least that many."""
    count = len(candidates.positions)
    low = _half(candidates, range(count // 2))
    high = _half(candidates, range(count // 2, count))
    weighed = list(_weigh(candidates, low, high, size))
    best = max(entry.best for entry in weighed)
    ties = [
        _members(entry.mask) + _members(high.masks[place])
        for entry in weighed
        if entry.best == best
        for place, total in enumerate(entry.totals, entry.start)
        if total == entry.most
    ]
    nodes = [candidates.numa_nodes(members) for members in ties]
    fewest = min(nodes)
    ties = [members for members, count in zip(ties, nodes, strict=True) if count == fewest]
    return min(ties, key=lambda members: (candidates.breakage(members), members))


@cache
def _members(mask: int) -> tuple[int, ...]:
    """Return the members of a subset of one half. There are few, and many sets share them."""
    return tuple(member for member in range(mask.bit_length()) if mask >> member & 1)


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
    """Yield every set of `size`. rows: of a low subset, the totals with each high one."""
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
    """Return the quality between one member and each subset."""
    quality = candidates.quality[member]
    reach = [0]
    for top, rest in zip(half.top[1:], half.rest[1:], strict=True):
        reach.append(reach[rest] + quality[top])
    return reach


def _within(candidates: Candidates, half: _Half) -> list[int]:
    """Return the quality inside each subset."""
    reach = {member: _reach(candidates, member, half) for member in set(half.top[1:])}
    within = [0]
    for top, rest in zip(half.top[1:], half.rest[1:], strict=True):
        within.append(within[rest] + reach[top][rest])
    return within


def good_set(candidates: Candidates, size: int) -> tuple[int, ...]:
    """Return the members of the best set that was reached, ascending."""
    starts = (member for member, twin in enumerate(candidates.twin) if twin is None)
    grown = {_grow(candidates, start, size) for start in islice(starts, MOST_STARTS)}
    return min(grown, key=candidates.rank)


def _grow(candidates: Candidates, start: int, size: int) -> tuple[int, ...]:
    members, nodes = [start], candidates.numa[start]
    gain = dict(enumerate(candidates.quality[start]))
    del gain[start]
    while len(members) < size:
        grown = max(
            gain, key=lambda other: (gain[other], bool(candidates.numa[other] & nodes), -other)
        )
        members.append(grown)
        nodes |= candidates.numa[grown]
        del gain[grown]
        for other in gain:
            gain[other] += candidates.quality[grown][other]
    return tuple(sorted(members))

"""The free GPUs as plain numbers, so that a search can add and compare them quickly.

Breakage is a list that is compared from its best quality down. Lists of one length compare like
the counts of each quality, best first, and counts compare like one integer whose digits they are;
so a quality becomes a power of a base that no count reaches. That integer is a sum over bonds:
what a set breaks is what its members lose alone, less twice what stays inside the set.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter

from gpumanager.gpu.values import Topology


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

    def quality_within(self, members: Sequence[int]) -> int:
        """Twice the total quality, every pair being counted from both sides."""
        return _inside(self.quality, members)

    def numa_nodes(self, members: Sequence[int]) -> int:
        return len(set(itemgetter(*members)(self.numa)))

    def breakage(self, members: Sequence[int]) -> int:
        alone: int = sum(itemgetter(*members)(self.alone))
        return alone - self._digits_within(members)

    def _digits_within(self, members: Sequence[int]) -> int:
        """Of a large set by what is left out: all, less what the others have, from both sides."""
        if 2 * len(members) <= len(self.positions):
            return _inside(self.digit, members)
        inside = set(members)
        others = [member for member in range(len(self.positions)) if member not in inside]
        within = _inside(self.digit, others) if len(others) > 1 else 0
        return sum(self.reach) - 2 * sum(self.reach[other] for other in others) + within

    def rank(self, members: tuple[int, ...]) -> tuple[int, int, int, tuple[int, ...]]:
        """The objective: the smallest is the best. `members` in ascending order."""
        quality = self.quality_within(members)
        return -quality, self.numa_nodes(members), self.breakage(members), members


def _inside(table: Sequence[Sequence[int]], members: Sequence[int]) -> int:
    """The sum over all ordered pairs of at least two members. In C: ties may be thousands."""
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
    return Candidates(
        positions=tuple(fitting),
        quality=tuple(tuple(table[a][b] for b in chosen) for a in chosen),
        numa=tuple(1 << known.index(node) for node in nodes),
        alone=tuple(sum(row) for row in digit),
        digit=among,
        reach=tuple(map(sum, among)),
        twin=_twins([table[a] for a in chosen], chosen, _interchangeable(nodes)),
    )


def _interchangeable(nodes: Sequence[int | None]) -> list[int | str | None]:
    """Members alone on their NUMA node are alike in this: each costs one node of its own."""
    return [node if nodes.count(node) > 1 else "alone" for node in nodes]


def _twins(
    rows: Sequence[list[int]], columns: Sequence[int], nodes: Sequence[int | str | None]
) -> tuple[int | None, ...]:
    """For each member the next lower one with the like NUMA node and the same other bonds."""
    found: list[int | None] = []
    for member, row in enumerate(rows):
        lower = reversed(range(member))
        alike = (
            other
            for other in lower
            if nodes[other] == nodes[member]
            and _same_but(row, rows[other], columns[member], columns[other])
        )
        found.append(next(alike, None))
    return tuple(found)


def _same_but(row: list[int], other: list[int], own: int, others: int) -> bool:
    """Whether two rows are equal once their owners change places."""
    moved = list(other)
    moved[own], moved[others] = moved[others], moved[own]
    return row == moved

"""Which nodes kube-scheduler names, and in which order.

It looks at the nodes one after another from where it stopped last, with 16 workers of which each
takes some that lie together, and names those that pass its own filters in the order in which the
workers come to them. With `percentageOfNodesToScore: 100` it looks at all of them; by default it
stops at 50 % less one for each 125 nodes, at least 5 %, at least 100 nodes.
"""

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, islice
from operator import itemgetter
from typing import Final

from extender.cluster import Shape

WORKERS: Final = 16
PATTERNS: Final = 32
"""Orders that are made ahead; where one begins varies with each pod."""
SEPARATOR: Final = '","'


def default_count(nodes: int) -> int:
    """How many nodes kube-scheduler looks for, by default."""
    percent = max(5, 50 - nodes // 125)
    return min(nodes, max(100, nodes * percent // 100))


def pattern(nodes: int, luck: random.Random) -> list[int]:
    """How far each node is from the first: pieces of neighbours, mixed as workers mix them."""
    piece = max(1, min(math.isqrt(nodes), nodes // WORKERS + 1))
    pieces = iter([iter(range(at, min(at + piece, nodes))) for at in range(0, nodes, piece)])
    workers = list(islice(pieces, WORKERS))
    order = []
    while workers:
        place = luck.randrange(len(workers))
        found = next(workers[place], None)
        if found is not None:
            order.append(found)
        elif (following := next(pieces, None)) is not None:
            workers[place] = following
        else:
            del workers[place]
    return order


def text(names: Iterable[str]) -> bytes:
    """As `a","b","c`."""
    return SEPARATOR.join(names).encode()


class Everything:
    """All nodes for each pod, full ones too: more than kube-scheduler would ever send."""

    def __init__(self, names: Sequence[str], luck: random.Random) -> None:
        self._luck = luck
        self._texts = [self._text(names, luck) for _ in range(PATTERNS)]

    def names(self, _shape: Shape) -> bytes:
        return self._luck.choice(self._texts)

    @staticmethod
    def _text(names: Sequence[str], luck: random.Random) -> bytes:
        start, count = luck.randrange(len(names)), len(names)
        order = pattern(count, luck)
        return text(names[(start + far) % count] for far in order)


class AllFeasible:
    """All with enough free cores for the pod. free: cores by node, kept by others.

    Who looks at all nodes begins where it began before. Names in all orders lie ready, so that a
    list costs the caller little beside what it costs the extender.
    """

    def __init__(self, names: Sequence[str], free: Sequence[int], luck: random.Random) -> None:
        self._free = free
        self._luck = luck
        orders = [pattern(len(names), luck) for _ in range(PATTERNS)]
        self._orders = [(tuple(names[node] for node in one), itemgetter(*one)) for one in orders]

    def names(self, shape: Shape) -> bytes:
        names, pick = self._luck.choice(self._orders)
        return text(compress(names, map(shape.cores.__le__, pick(self._free))))


class Feasible:
    """The first `count` with enough free cores for the pod. free: cores by node, kept by others."""

    def __init__(
        self, names: Sequence[str], free: Sequence[int], count: int, luck: random.Random
    ) -> None:
        self._names = names
        self._free = free
        self._count = count
        self._luck = luck
        self._start = 0
        self._patterns = [pattern(len(names), luck) for _ in range(PATTERNS)]

    def names(self, shape: Shape) -> bytes:
        order = self._order()
        fitting = (node for node in order if self._free[node] >= shape.cores)
        found = list(islice(fitting, self._count))
        self._start = next(order, self._start)
        return text(self._names[node] for node in found)

    def _order(self) -> Iterator[int]:
        start, count = self._start, len(self._names)
        return ((start + far) % count for far in self._luck.choice(self._patterns))

"""What is free on the GPUs of a node, in a few figures by which most refusals are found. Pure.

A node that changes is looked at for every shape of pod, and most shapes it refuses: its GPUs need
not be gone through again for each. The figures are made once for all nodes that are alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpumanager.placement.values import Request
from gpumanager.units import CORES_PER_GPU

Free = tuple[int, int, int]
"""Cores, blocks and containers of one GPU."""


@dataclass(frozen=True, slots=True)
class Spare:
    """cores: of all GPUs. most: cores of one. shares: cores and blocks of one, those left out that
    have no more of either than another. whole: blocks of GPUs that can be given whole; cards: of
    all GPUs; the largest first.
    """

    cores: int
    most: int
    shares: tuple[tuple[int, int], ...]
    whole: tuple[int, ...]
    cards: tuple[int, ...]

    def has_room(self, request: Request) -> bool:
        """For one container."""
        if count := request.whole_gpus:
            return _has(self.whole, count, request.blocks)
        wanted, blocks = request.cores, request.blocks
        return any(cores >= wanted and room >= blocks for cores, room in self.shares)

    def could_have_room(self, request: Request) -> bool:
        """If everything were free."""
        return _has(self.cards, max(1, request.whole_gpus), request.blocks)


def spare_of(cards: Sequence[int], free: Sequence[Free]) -> Spare:
    """cards: blocks of each GPU. free: likewise; nothing is, of one that is closed."""
    rows = zip(cards, free, strict=True)
    whole = [card for card, row in rows if row[0] == CORES_PER_GPU and row[2] == 0]
    return Spare(
        sum([max(0, row[0]) for row in free]),
        max([row[0] for row in free], default=0),
        tuple(_unbeaten((row[0], row[1]) for row in free)),
        tuple(sorted(whole, reverse=True)),
        tuple(sorted(cards, reverse=True)),
    )


def _has(blocks: Sequence[int], count: int, least: int) -> bool:
    return len(blocks) >= count and blocks[count - 1] >= least


def _unbeaten(pairs: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    most = 0
    for cores, blocks in sorted(pairs, reverse=True):
        if blocks > most:
            most = blocks
            yield cores, blocks

"""Kinds of machine: what nodes have in common that are built alike. Pure."""

from collections.abc import Hashable
from functools import cached_property, lru_cache
from typing import Final

from gpumanager.gpu.values import Bond, Topology
from gpumanager.scheduler.spare import Free, Spare, spare_of
from gpumanager.units import blocks

Bonds = tuple[tuple[Bond | None, ...], ...]

MAKES: Final = 1024
"""How many kinds of machine are told apart; beyond, machines of one kind are seen as several."""
LIKENESSES: Final = 65536


class Make:
    """What machines have in common that are built alike, whatever their GPUs are called. cards:
    blocks of each GPU."""

    def __init__(self, cards: tuple[int, ...], bonds: Bonds) -> None:
        self.cards = cards
        self.bonds = bonds


class Likeness:
    """What nodes have in common whose GPUs are linked alike and have as much free, or are as
    closed, or not understood: an object, which is found faster in a table than all that it stands
    for."""

    def __init__(self, make: Make | None = None, free: tuple[Free, ...] = ()) -> None:
        self._make = make
        self._free = free

    @cached_property
    def spare(self) -> Spare:
        return spare_of(self._make.cards if self._make else (), self._free)


def make_of(topology: Topology) -> Make:
    gpus = tuple((gpu.model, gpu.memory, gpu.numa_node) for gpu in topology.gpus)
    return _make(gpus, tuple(blocks(gpu.memory) for gpu in topology.gpus), topology.bonds)


@lru_cache(maxsize=LIKENESSES)
def likeness_of(
    make: Make | None, free: tuple[Free, ...], _closed: tuple[bool, ...], _trouble: str
) -> Likeness:
    """One for all that are alike; beyond so many, some that are alike are seen as several.

    free: of each GPU; nothing is, of one that is closed.
    """
    return Likeness(make, free)


@lru_cache(maxsize=MAKES)
def _make(_gpus: Hashable, cards: tuple[int, ...], bonds: Bonds) -> Make:
    return Make(cards, bonds)

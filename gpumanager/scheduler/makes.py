"""Kinds of machine: what nodes have in common that are built alike. Pure."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Final

from gpumanager.gpu.values import Bond, Topology

Bonds = tuple[tuple[Bond | None, ...], ...]

Free = tuple[tuple[int, int, int], ...]
"""Cores, blocks and containers of each GPU."""

MAKES: Final = 1024
"""How many kinds of machine are told apart; beyond, machines of one kind are seen as several."""
LIKENESSES: Final = 65536


class Make:
    """What machines have in common that are built alike, whatever their GPUs are called."""

    def __init__(self, bonds: Bonds) -> None:
        self.bonds = bonds


class Likeness:
    """What nodes have in common whose GPUs are linked alike and have as much free, or are as
    closed, or not understood: an object, which is found faster in a table than all that it stands
    for."""


def make_of(topology: Topology) -> Make:
    gpus = tuple((gpu.model, gpu.memory, gpu.numa_node) for gpu in topology.gpus)
    return _make(gpus, topology.bonds)


@lru_cache(maxsize=LIKENESSES)
def likeness_of(
    _make: Make | None, _free: Free, _closed: tuple[bool, ...], _trouble: str
) -> Likeness:
    """One for all that are alike; beyond so many, some that are alike are seen as several."""
    return Likeness()


@lru_cache(maxsize=MAKES)
def _make(_gpus: Hashable, bonds: Bonds) -> Make:
    return Make(bonds)

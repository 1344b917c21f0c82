"""Kinds of machine: what nodes have in common that are built alike. Pure."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Final

from gpumanager.gpu.values import Bond, Topology

Bonds = tuple[tuple[Bond | None, ...], ...]

MAKES: Final = 1024
"""How many kinds of machine are told apart; beyond, machines of one kind are seen as several."""


class Make:
    """What machines have in common that are built alike, whatever their GPUs are called."""

    def __init__(self, bonds: Bonds) -> None:
        self.bonds = bonds


def make_of(topology: Topology) -> Make:
    gpus = tuple((gpu.model, gpu.memory, gpu.numa_node) for gpu in topology.gpus)
    return _make(gpus, topology.bonds)


@lru_cache(maxsize=MAKES)
def _make(_gpus: Hashable, bonds: Bonds) -> Make:
    return Make(bonds)

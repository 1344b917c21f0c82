"""What nodes have in common: the type of their machine, and their signature. Pure."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Final

from gpumanager.gpu.values import Bond, Topology
from gpumanager.placement.values import FreeGpu

Bonds = tuple[tuple[Bond | None, ...], ...]

TYPES: Final = 1024
"""How many types of machine are told apart; beyond, machines of one type are seen as several."""
SIGNATURES: Final = 65536


class MachineType:
    """What machines have in common that are built alike, whatever their GPUs are called."""

    def __init__(self, bonds: Bonds) -> None:
        self.bonds = bonds


class NodeSignature:
    """What nodes have in common whose GPUs are linked alike and have as much free, or are as
    closed, or not understood: an object, which is found faster in a table than all that it stands
    for."""


def machine_type_of(topology: Topology) -> MachineType:
    gpus = tuple((gpu.model, gpu.memory, gpu.numa_node) for gpu in topology.gpus)
    return _type(gpus, topology.bonds)


@lru_cache(maxsize=SIGNATURES)
def signature_of(
    _machine: MachineType | None,
    _gpus: tuple[FreeGpu, ...],
    _closed: tuple[bool, ...],
    _trouble: str,
) -> NodeSignature:
    """One for all that are alike; beyond so many, some that are alike are seen as several."""
    return NodeSignature()


@lru_cache(maxsize=TYPES)
def _type(_gpus: Hashable, bonds: Bonds) -> MachineType:
    return MachineType(bonds)

"""Simulated machines as data: GPUs, how they are linked, which driver they run."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpumanager.gpu.values import Topology


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What the simulated driver says of a model. context_bytes: what a first context takes."""

    name: str
    sm_count: int
    compute_capability: tuple[int, int]
    max_threads_per_sm: int = 2048
    context_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: its GPUs with their bonds, and the models they are of, by name."""

    name: str
    topology: Topology
    models: Mapping[str, GpuModel]
    cuda_version: int = 12050

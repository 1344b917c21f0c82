"""Simulated machines as data: GPUs, how they are linked, which driver they run."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpumanager.gpu.values import Topology


@dataclass(frozen=True, slots=True)
class GpuModel:
    """What the simulated driver says of a model. context_bytes: what a first context takes.

    link_bandwidth, memory_bandwidth: bytes a second, to the host each way and of its own memory;
    0: of a PCIe 3.0 card's order.
    """

    name: str
    sm_count: int
    compute_capability: tuple[int, int]
    max_threads_per_sm: int = 2048
    context_bytes: int = 0
    link_bandwidth: int = 0
    memory_bandwidth: int = 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: its GPUs with their bonds, and the models they are of, by name.

    slice_ns: for how long a process has a GPU that others want too; 0: 2 ms.
    """

    name: str
    topology: Topology
    models: Mapping[str, GpuModel]
    cuda_version: int = 12050
    slice_ns: int = 0

"""What the virtual manager serves: one allocation, and what it may use of each of its GPUs."""

from dataclasses import dataclass

from gpumanager.gpu.values import GpuUUID
from gpumanager.units import Bytes


@dataclass(frozen=True, slots=True)
class Limit:
    """What one container may use of one GPU.

    memory: bytes, hard. cores: percent of the GPU's time guaranteed, 1-99, or 100 for no limit.
    ceiling: percent it may burst up to; equal to `cores` for a hard limit.
    """

    gpu: GpuUUID
    memory: Bytes
    cores: int
    ceiling: int

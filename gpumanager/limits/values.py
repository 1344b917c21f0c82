"""What an allocation may use of each of its GPUs, and what it uses by its books, as values."""

from dataclasses import dataclass

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
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


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """One GPU of the allocation.

    held, peak: bytes reserved by all its processes, now and at most.
    denied: reservations refused at the limit.
    charged_ns, throttled_ns: GPU time paid for, and time launches were made to wait.
    launches, throttled: how many there were, and how many of them had to wait.
    """

    limit: Limit
    held: Bytes
    peak: Bytes
    denied: int
    charged_ns: int
    throttled_ns: int
    launches: int
    throttled: int


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """One process. held: bytes per GPU, in the order of the devices. degraded: VCUDA_DEGRADED_*.

    unlimited: its shim could not place functions that allocate or launch. adopted: the books of an
    earlier manager say that the slot is its own; it has not called since.
    """

    slot: int
    pid: int
    start_time: int
    degraded: int
    held: tuple[Bytes, ...]
    unlimited: bool = False
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class AllocationUsage:
    """All of one allocation. A device withdrawn from it stays listed, with a limit of 0.

    overdrawn: it goes on launching out of turn.
    """

    allocation: AllocationID
    generation: int
    devices: tuple[DeviceUsage, ...]
    processes: tuple[ProcessUsage, ...]
    overdrawn: bool = False

"""What each process holds on a GPU, as NVML tells it. One that only draws holds memory, too."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gpumanager.gpu.nvml import if_supported
from gpumanager.gpu.usage.running_processes import COMPUTE, GRAPHICS, running
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import Bytes

ProcessMemory = Mapping[GpuUUID, Mapping[int, Bytes | None]]
"""GPU → host pid → bytes, or None for a process of which the driver does not tell. Complete for
each GPU that it names: a process that is not there has nothing."""


def processes_of(handle: Any) -> dict[int, Bytes | None]:
    """Return host pid → bytes, or None where the driver has no figure. Raises pynvml.NVMLError.

    A process that computes and draws is in both lists, with the same figure: all it holds. A GPU
    without graphics may not have the second list.
    """
    computing = running(COMPUTE, handle)
    drawing: list[Any] = if_supported(partial(running, GRAPHICS, handle), [])
    sizes: dict[int, Bytes | None] = {}
    for process in (*drawing, *computing):
        size = process.usedGpuMemory
        sizes[process.pid] = None if size is None else Bytes(max(size, sizes.get(process.pid) or 0))
    return sizes

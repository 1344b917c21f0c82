"""What each process of this machine holds on each GPU, as NVML tells it.

Of a GPU that is split into instances (MIG) the instances are asked; a process that only draws holds
memory, too. What the driver does not tell is left out, or None, but never taken for 0.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import pynvml

from gpumanager.gpu.nvml import if_supported
from gpumanager.gpu.nvml_session import NvmlSession, asked_for
from gpumanager.gpu.usage.running_processes import COMPUTE, GRAPHICS, running
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import Bytes


class NvmlMeter(NvmlSession):
    """What processes hold; one thread at a time."""

    def __call__(
        self, gpus: Collection[GpuUUID] | None = None
    ) -> Mapping[GpuUUID, Mapping[int, Bytes | None]]:
        """GPU → host pid → bytes. gpus: only these, by their bare UUIDs; None: all.

        Raises NvmlError.
        """
        return self.answer(partial(_measure, gpus), "asking what processes hold")


def _measure(gpus: Collection[GpuUUID] | None) -> dict[GpuUUID, dict[int, Bytes | None]]:
    held: dict[GpuUUID, dict[int, Bytes | None]] = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        nothing: dict[GpuUUID, dict[int, Bytes | None]] = {}
        held |= if_supported(partial(_measure_gpu, index, gpus), nothing)  # it may be lost
    return held


def _measure_gpu(
    index: int, gpus: Collection[GpuUUID] | None
) -> dict[GpuUUID, dict[int, Bytes | None]]:
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    return {uuid: _processes(handle) for uuid, handle in asked_for(device, gpus)}


def _processes(handle: Any) -> dict[int, Bytes | None]:
    """A process that computes and draws is in both lists, with the same figure: all it holds.

    A GPU without graphics may not have the second list.
    """
    computing = running(COMPUTE, handle)
    drawing: list[Any] = if_supported(partial(running, GRAPHICS, handle), [])
    sizes: dict[int, Bytes | None] = {}
    for process in (*drawing, *computing):
        size = process.usedGpuMemory
        sizes[process.pid] = None if size is None else Bytes(max(size, sizes.get(process.pid) or 0))
    return sizes

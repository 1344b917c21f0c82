"""What each process of this machine holds on each GPU, as NVML tells it.

Of a GPU that is split into instances (MIG) the instances are asked; a process that only draws holds
memory, too. What the driver does not tell is left out, or None, but never taken for 0.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import pynvml

from gpumanager.gpu.nvml import NvmlError, ask, if_supported, text
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import Bytes


class NvmlMeter:
    """Opens NVML at its first question and keeps it open until close(); one thread at a time.

    A question that fails closes it, so that the next begins anew: the driver may have been updated.
    """

    def __init__(self) -> None:
        self._open = False

    def __call__(self) -> Mapping[GpuUUID, Mapping[int, Bytes | None]]:
        """GPU → host pid → bytes; raises NvmlError."""
        try:
            self._begin()
            return ask(_measure, "asking what processes hold")
        except NvmlError:
            self.close()
            raise

    def close(self) -> None:
        if self._open:
            self._open = False
            if_supported(pynvml.nvmlShutdown, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> None:
        if not self._open:
            ask(pynvml.nvmlInit, "opening NVML")
            self._open = True


def _measure() -> dict[GpuUUID, dict[int, Bytes | None]]:
    held: dict[GpuUUID, dict[int, Bytes | None]] = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        nothing: dict[GpuUUID, dict[int, Bytes | None]] = {}
        held |= if_supported(partial(_measure_gpu, index), nothing)  # it may be lost
    return held


def _measure_gpu(index: int) -> dict[GpuUUID, dict[int, Bytes | None]]:
    handles = _instances(pynvml.nvmlDeviceGetHandleByIndex(index))
    return {GpuUUID(text(pynvml.nvmlDeviceGetUUID(one))): _processes(one) for one in handles}


def _instances(device: Any) -> Iterator[Any]:
    """The MIG devices of a GPU that has them; otherwise the GPU."""
    enabled, _pending = if_supported(partial(pynvml.nvmlDeviceGetMigMode, device), (0, 0))
    if not enabled:
        yield device
        return
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        found = if_supported(
            partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index), None
        )
        if found is not None:
            yield found


def _processes(handle: Any) -> dict[int, Bytes | None]:
    """A process that computes and draws is in both lists, with the same figure: all it holds.

    A GPU without graphics may not have the second list.
    """
    computing: list[Any] = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    drawing: list[Any] = if_supported(
        partial(pynvml.nvmlDeviceGetGraphicsRunningProcesses, handle), []
    )
    sizes: dict[int, Bytes | None] = {}
    for process in (*drawing, *computing):
        size = process.usedGpuMemory
        sizes[process.pid] = None if size is None else Bytes(max(size, sizes.get(process.pid) or 0))
    return sizes

"""How each GPU is right now, as NVML tells it: memory, how busy, how warm.

What a GPU does not tell is None. One that cannot be asked at all is left out: it may be lost.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pynvml

from gpumanager.gpu.nvml import if_supported, text
from gpumanager.gpu.usage.running_processes import COMPUTE, running
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import Bytes

MOST = 100


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """One GPU. percent: of the last sample period with a kernel running, 0 to 100."""

    memory_used: Bytes
    percent: int | None = None
    temperature_celsius: int | None = None
    power_milliwatts: int | None = None


def status_of(index: int) -> dict[GpuUUID, GpuStatus]:
    """By the GPU's UUID. Raises pynvml.NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    status = GpuStatus(
        memory_used=_used(handle),
        percent=_told(partial(_busy, handle)),
        temperature_celsius=_told(
            partial(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
        ),
        power_milliwatts=_told(partial(pynvml.nvmlDeviceGetPowerUsage, handle)),
    )
    return {GpuUUID(text(pynvml.nvmlDeviceGetUUID(handle))): status}


def _used(handle: Any) -> Bytes:
    """By processes; what the driver keeps is part of the first form's answer. Of a GPU that has no
    such figure, since its memory is the machine's, what its processes hold."""
    second = partial(pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
    try:
        told = if_supported(second, None) or pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError_NotSupported:
        return Bytes(sum(one.usedGpuMemory or 0 for one in running(COMPUTE, handle)))
    return Bytes(int(told.used))


def _busy(handle: Any) -> int:
    return min(int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu), MOST)


def _told(question: Callable[[], Any]) -> int | None:
    answer = if_supported(question, None)
    return None if answer is None else int(answer)

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
    """Return a GPU's status by its UUID. Raises pynvml.NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    second = partial(pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
    try:
        # What processes hold; in the first form's answer what the driver keeps is part of it.
        used = int((if_supported(second, None) or pynvml.nvmlDeviceGetMemoryInfo(handle)).used)
    except pynvml.NVMLError_NotSupported:
        # The GPU has no such figure: its memory is the machine's.
        used = sum(one.usedGpuMemory or 0 for one in running(COMPUTE, handle))
    heat = partial(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
    rates = if_supported(partial(pynvml.nvmlDeviceGetUtilizationRates, handle), None)
    status = GpuStatus(
        memory_used=Bytes(used),
        percent=None if rates is None else min(int(rates.gpu), MOST),
        temperature_celsius=_answer(heat),
        power_milliwatts=_answer(partial(pynvml.nvmlDeviceGetPowerUsage, handle)),
    )
    return {GpuUUID(text(pynvml.nvmlDeviceGetUUID(handle))): status}


def _answer(question: Callable[[], Any]) -> int | None:
    answer = if_supported(question, None)
    return None if answer is None else int(answer)

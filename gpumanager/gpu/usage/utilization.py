"""How busy each process keeps each GPU, as NVML samples it.

Two functions tell; which of them a driver knows depends on its age. NVML stamps samples with the
time of day in microseconds, which may be set; a cursor per GPU, in those very units, asks for what
is strictly newer. Buffers of real drivers hold remains of processes long gone, and figures above
100: those are dropped.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pynvml

from gpumanager.gpu.nvml import if_supported
from gpumanager.gpu.usage.samples import GpuUtilization, ProcessSample
from gpumanager.gpu.values import GpuUUID

Question = Callable[[Any, int], list[Any]]

QUESTIONS: Final[tuple[str, ...]] = (
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetProcessesUtilizationInfo",
)
MOST: Final = 100
LOOK_BACK_US: Final = 1_000_000
"""How old a sample may be at the first question."""

_NOBODY: Final = {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND}
_NEVER: Final = {
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    pynvml.NVML_ERROR_NO_PERMISSION,
}
_GREW: Final = pynvml.NVML_ERROR_INSUFFICIENT_SIZE


class UtilizationSampler:
    """Asks each GPU for what is newer than the last time; one thread at a time."""

    def __init__(self) -> None:
        self._seen: dict[GpuUUID, int] = {}
        """Stamp of the newest sample of each GPU."""

    def ask(self, handle: Any, gpu: GpuUUID) -> GpuUtilization:
        """Return what is newer than the last answer. Raises pynvml.NVMLError."""
        now_us, now_ns = time.time_ns() // 1000, time.monotonic_ns()
        seen = self._seen.get(gpu, 0)
        if not now_us - 10 * LOOK_BACK_US < seen <= now_us + LOOK_BACK_US:  # or the time was set
            seen = now_us - LOOK_BACK_US
        rows = newer_than(handle, seen)
        if rows is None:
            return GpuUtilization(now_ns, None)
        sound = [
            row
            for row in rows
            if row.pid > 0 and row.smUtil <= MOST and seen < row.timeStamp <= now_us + LOOK_BACK_US
        ]
        self._seen[gpu] = max((int(row.timeStamp) for row in sound), default=seen)
        offset_ns = now_ns - now_us * 1000
        samples = tuple(
            ProcessSample(int(row.pid), int(row.timeStamp) * 1000 + offset_ns, int(row.smUtil))
            for row in sound
        )
        rates = None
        if samples:
            rates = if_supported(partial(pynvml.nvmlDeviceGetUtilizationRates, handle), None)
        busy = None if rates is None or not 0 <= rates.gpu <= MOST else int(rates.gpu)
        return GpuUtilization(now_ns, samples, busy)


def newer_than(handle: Any, stamp: int) -> list[Any] | None:
    """Return rows as NVML has them; None where it never does. Raises pynvml.NVMLError."""
    for name in QUESTIONS:
        try:
            return _ask_twice(getattr(pynvml, name), handle, stamp)
        except pynvml.NVMLError as error:
            if error.value in _NOBODY:
                return []
            if error.value not in _NEVER:
                raise
    return None


def _ask_twice(question: Question, handle: Any, stamp: int) -> list[Any]:
    """Ask again where a process has come between NVML's count and its list."""
    try:
        return question(handle, stamp)
    except pynvml.NVMLError as error:
        if error.value != _GREW:
            raise
    return question(handle, stamp)

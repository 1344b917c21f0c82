"""Which processes run on a GPU and what each holds there, asked of drivers of any age.

nvidia-ml-py asks in the newest way, which drivers before R510 do not have; instead of an error of
NVML it then raises one of its own. The older ways differ in their names and in what a row has.
"""

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pynvml

from gpumanager.gpu.nvml import if_supported
from gpumanager.gpu.values import GpuUUID
from gpumanager.units import Bytes

ProcessMemory = Mapping[GpuUUID, Mapping[int, Bytes | None]]
"""GPU → host pid → bytes, or None for a process of which the driver does not tell. Complete for
each GPU that it names: a process that is not there has nothing."""

COMPUTE: Final = "nvmlDeviceGetComputeRunningProcesses"
GRAPHICS: Final = "nvmlDeviceGetGraphicsRunningProcesses"
SPARE: Final = 16
"""Rows for processes that come between NVML's count and its list."""


class _Row(ctypes.Structure):
    """Before there were instances of GPUs (MIG)."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


_OLDER: Final = {"_v2": pynvml.c_nvmlProcessInfo_v2_t, "": _Row}
"""By the end of the function's name, the newer first."""


def running(kind: str, handle: Any) -> list[Any]:
    """Return rows with `pid` and `usedGpuMemory`, or None for it. kind: COMPUTE or GRAPHICS.

    Raises pynvml.NVMLError.
    """
    with suppress(pynvml.NVMLLibraryMismatchError):
        found: list[Any] = getattr(pynvml, kind)(handle)
        return found
    for version, row in _OLDER.items():  # before R510
        try:
            function = pynvml._nvmlGetFunctionPointer(kind + version)  # noqa: SLF001 - no other
        except pynvml.NVMLError:
            continue
        count, rows = ctypes.c_uint(0), (row * 0)()
        code = function(handle, ctypes.byref(count), None)
        if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            count.value += SPARE
            rows = (row * count.value)()
            code = function(handle, ctypes.byref(count), rows)
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        found = [pynvml.nvmlStructToFriendlyObject(one) for one in rows[: count.value]]
        for one in found:
            if one.usedGpuMemory == pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value:
                one.usedGpuMemory = None
        return found
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


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

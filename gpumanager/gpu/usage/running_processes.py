"""Which processes run on a GPU, asked of drivers of any age.

nvidia-ml-py asks in the newest way, which drivers before R510 do not have; instead of an error of
NVML it then raises one of its own. The older ways differ in their names and in what a row has.
"""

import ctypes
from collections.abc import Callable
from typing import Any, Final

import pynvml

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
    """Rows with `pid` and `usedGpuMemory`, None where not told. kind: COMPUTE or GRAPHICS.

    Raises pynvml.NVMLError.
    """
    try:
        rows: list[Any] = getattr(pynvml, kind)(handle)
    except pynvml.NVMLLibraryMismatchError:
        return _before_r510(kind, handle)
    return rows


def _before_r510(kind: str, handle: Any) -> list[Any]:
    for version, row in _OLDER.items():
        try:
            function = pynvml._nvmlGetFunctionPointer(kind + version)  # noqa: SLF001 - no other
        except pynvml.NVMLError:
            continue
        return _rows(function, row, handle)
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def _rows(function: Callable[..., int], row: type[Any], handle: Any) -> list[Any]:
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
        count.value += SPARE
        rows = (row * count.value)()
        code = function(handle, ctypes.byref(count), rows)
        if code == pynvml.NVML_SUCCESS:
            return [_told(one) for one in rows[: count.value]]
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)
    return []


def _told(row: Any) -> Any:
    one = pynvml.nvmlStructToFriendlyObject(row)
    if one.usedGpuMemory == pynvml.NVML_VALUE_NOT_AVAILABLE_ulonglong.value:
        one.usedGpuMemory = None
    return one

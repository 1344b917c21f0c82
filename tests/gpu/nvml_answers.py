"""An NVML that answers as a test says: functions of pynvml, put in place of its own."""

from collections.abc import Callable
from typing import Any

import pynvml
import pytest

Function = Callable[..., Any]


def refuse(code: int) -> Function:
    def refused(*_: object) -> None:
        raise pynvml.NVMLError(code)

    return refused


def answers(patch: pytest.MonkeyPatch, **functions: Function) -> None:
    """Two GPUs, GPU-0 and GPU-1, that run nothing; and `functions`, named without `nvml`."""
    usual: dict[str, Function] = {
        "Init": lambda: None,
        "Shutdown": lambda: None,
        "DeviceGetCount": lambda: 2,
        "DeviceGetHandleByIndex": lambda index: f"GPU-{index}",
        "DeviceGetUUID": lambda handle: handle,
        "DeviceGetMigMode": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "DeviceGetComputeRunningProcesses": lambda _: [],
        "DeviceGetGraphicsRunningProcesses": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "DeviceGetProcessUtilization": lambda *_: [],
        "DeviceGetProcessesUtilizationInfo": refuse(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),
    }
    for name, function in (usual | functions).items():
        patch.setattr(pynvml, f"nvml{name}", function)

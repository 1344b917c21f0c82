"""An NVML that answers as a test says: functions of pynvml, put in place of its own."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

Function = Callable[..., Any]


def refuse(code: int) -> Function:
    def refused(*_: object, **_named: object) -> None:
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
        "DeviceGetHandleByUUID": bytes.decode,
        "DeviceGetMemoryInfo": lambda _, **_version: SimpleNamespace(
            total=1 << 30, used=0, free=1 << 30
        ),
        "DeviceGetTotalEccErrors": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "DeviceGetRemappedRows": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "DeviceGetRetiredPagesPendingStatus": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "DeviceGetFieldValues": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED),
        "EventSetCreate": lambda: "set",
        "EventSetFree": lambda _: None,
        "EventSetWait_v2": refuse(pynvml.NVML_ERROR_TIMEOUT),
        "DeviceGetSupportedEventTypes": lambda _: (1 << 64) - 1,
        "DeviceRegisterEvents": lambda *_: None,
    }
    for name, function in (usual | functions).items():
        patch.setattr(pynvml, f"nvml{name}", function)

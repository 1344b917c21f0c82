"""An NVML that answers as a test says: functions of pynvml, put in place of its own."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gpumanager.gpu.usage.nvml_pass import Gpus, NvmlPasses, NvmlQuery
from gpumanager.gpu.usage.process_memory import ProcessMemory
from gpumanager.gpu.usage.samples import UtilizationByGpu

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


def held(gpus: Gpus = None) -> ProcessMemory:
    """What processes hold, by NVML."""
    with NvmlPasses() as passes:
        return passes(NvmlQuery(processes=gpus)).held


def sampled(gpus: Gpus = None) -> UtilizationByGpu:
    """How busy processes keep the GPUs, by NVML."""
    with NvmlPasses() as passes:
        return passes(NvmlQuery(samples=gpus)).samples

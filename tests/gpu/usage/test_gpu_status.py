"""How GPUs are, as NVML tells it: what is not told is left out, and no GPU hides another."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.usage.nvml_pass import GpuStatus, NvmlPasses, NvmlQuery
from gpumanager.gpu.values import GpuUUID
from tests import ROOT
from tests.gpu.nvml_answers import answers, refuse
from tests.native.sim_box import machine, sim_box

REAL: dict[str, Any] = {
    "DeviceGetMemoryInfo": lambda _, **_version: SimpleNamespace(used=5, total=10),
    "DeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=60),
    "DeviceGetTemperature": lambda *_: 41,
    "DeviceGetPowerUsage": lambda _: 70_500,
}


def status() -> Mapping[GpuUUID, GpuStatus]:
    with NvmlPasses() as passes:
        return passes(NvmlQuery(status=True)).status or {}


def test_all_of_every_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, **REAL)

    found = status()

    one = GpuStatus(5, 60, 41, 70_500)  # type: ignore[arg-type]
    assert found == {GpuUUID("GPU-0"): one, GpuUUID("GPU-1"): one}


def test_what_a_gpu_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
    names = ("DeviceGetUtilizationRates", "DeviceGetTemperature", "DeviceGetPowerUsage")
    answers(monkeypatch, **{**REAL, **dict.fromkeys(names, silent)})

    assert status()[GpuUUID("GPU-0")] == GpuStatus(5)  # type: ignore[arg-type]


def test_a_gpu_without_a_memory_figure_uses_what_its_processes_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in ((1, 3), (2, None))]
    none = {"DeviceGetMemoryInfo": refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)}
    answers(monkeypatch, **{**REAL, **none, "DeviceGetComputeRunningProcesses": lambda _: rows})

    assert status()[GpuUUID("GPU-0")] == GpuStatus(3, 60, 41, 70_500)  # type: ignore[arg-type]


def test_more_than_a_hundred_percent_is_a_hundred(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = {"DeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=250)}
    answers(monkeypatch, **{**REAL, **busy})

    assert status()[GpuUUID("GPU-1")].percent == 100


def test_a_gpu_that_is_lost_does_not_hide_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def memory(handle: str, **_version: object) -> SimpleNamespace:
        if handle == "GPU-0":
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return SimpleNamespace(used=5)

    answers(monkeypatch, **{**REAL, "DeviceGetMemoryInfo": memory})

    assert list(status()) == [GpuUUID("GPU-1")]


def test_no_driver_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, Init=refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))

    with pytest.raises(NvmlError, match="modprobe"):
        status()


def test_simulated_gpus_tell_their_memory_and_how_busy_they_are() -> None:
    with sim_box(machine(2)) as box:
        found = json.loads(box.program(ROOT / "tests/gpu/programs/nvml_status.py"))

    assert list(found) == [gpu.uuid for gpu in box.machine.topology.gpus]
    assert all(used == 0 and percent == 0 for used, percent in found.values())

"""Processes on a GPU by drivers of each age: nvidia-ml-py itself over what each exports."""

import ctypes
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from gpumanager.gpu.usage.process_memory import COMPUTE, GRAPHICS, running

UNKNOWN = (1 << 64) - 1
PROCESSES = ((7, 500), (8, UNKNOWN))
Exported = Callable[[Any, Any, Any], int]


class RowBeforeInstances(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


def exported(row: type[Any], processes: tuple[tuple[int, int], ...] = PROCESSES) -> Exported:
    """As a driver has it, whose rows are of this kind."""

    def function(_: object, count: Any, rows: Any) -> int:
        room, count._obj.value = count._obj.value, len(processes)
        if room < len(processes):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        places = ctypes.cast(rows, ctypes.POINTER(row)) if rows else ()
        for place, (pid, size) in enumerate(processes):
            places[place].pid, places[place].usedGpuMemory = pid, size
        return int(pynvml.NVML_SUCCESS)

    return function


def driver_with(patch: pytest.MonkeyPatch, **functions: Exported) -> None:
    def pointer(name: str) -> Exported:
        if name not in functions:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return functions[name]

    patch.setattr(pynvml, "_nvmlGetFunctionPointer", pointer)


def listed(kind: str) -> list[tuple[int, int | None]]:
    return [(one.pid, one.usedGpuMemory) for one in running(kind, "GPU-0")]


@pytest.mark.parametrize("kind", [COMPUTE, GRAPHICS])
@pytest.mark.parametrize(
    ("version", "row"),
    [
        ("_v3", pynvml.c_nvmlProcessInfo_v3_t),
        ("_v2", pynvml.c_nvmlProcessInfo_v2_t),
        ("", RowBeforeInstances),
    ],
)
def test_every_driver_is_asked_as_it_can_be(
    monkeypatch: pytest.MonkeyPatch, kind: str, version: str, row: type[Any]
) -> None:
    driver_with(monkeypatch, **{kind + version: exported(row)})

    assert listed(kind) == [(7, 500), (8, None)]


def test_an_old_driver_without_processes_lists_none(monkeypatch: pytest.MonkeyPatch) -> None:
    driver_with(monkeypatch, **{f"{COMPUTE}_v2": exported(pynvml.c_nvmlProcessInfo_v2_t, ())})

    assert listed(COMPUTE) == []


def test_the_newer_of_two_ways_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    new = exported(pynvml.c_nvmlProcessInfo_v2_t, ((7, 1),))
    driver_with(monkeypatch, **{f"{COMPUTE}_v2": new, COMPUTE: exported(RowBeforeInstances)})

    assert listed(COMPUTE) == [(7, 1)]


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN])
def test_what_an_old_driver_refuses_is_an_error_of_nvml(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    driver_with(monkeypatch, **{COMPUTE: lambda *_: code})

    with pytest.raises(pynvml.NVMLError):
        running(COMPUTE, "GPU-0")


def test_a_driver_that_has_no_such_function_answers_as_nvml_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver_with(monkeypatch)

    with pytest.raises(pynvml.NVMLError) as refused:
        running(GRAPHICS, "GPU-0")

    assert refused.value.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND

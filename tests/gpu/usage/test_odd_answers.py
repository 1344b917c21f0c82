"""NVML's odd answers: what is not told is left out, and no GPU hides another."""

import ctypes
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.usage.nvml_pass import Gpus, GpuStatus, NvmlPasses, NvmlQuery
from gpumanager.gpu.usage.process_memory import COMPUTE, GRAPHICS, ProcessMemory, running
from gpumanager.gpu.usage.samples import UtilizationByGpu
from gpumanager.gpu.values import GpuUUID
from tests import ROOT
from tests.gpu.nvml_answers import answers, refuse
from tests.native.sim_box import machine, sim_box

Functions = dict[str, Callable[..., Any]]
Told = dict[str, list[tuple[int, int]] | None]

UNSUPPORTED = refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
LOST = refuse(pynvml.NVML_ERROR_GPU_IS_LOST)


def of_first(answer: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """GPU 0 answers so, the others otherwise."""
    return lambda handle, *more, **named: (answer if handle in {0, "GPU-0"} else other)(
        handle, *more, **named
    )


def split(*missing: int) -> Functions:
    """One GPU, with three instances but for these."""

    def instance(device: str, index: int) -> str:
        if index in missing:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return f"MIG-{device}-{index}"

    return {
        "DeviceGetCount": lambda: 1,
        "DeviceGetMigMode": lambda _: (1, 1),
        "DeviceGetMaxMigDeviceCount": lambda _: 3,
        "DeviceGetMigDeviceHandleByIndex": instance,
    }


# What processes hold.


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    usedGpuMemory: int | None  # noqa: N815 - as pynvml calls it


def held(gpus: Gpus = None) -> ProcessMemory:
    with NvmlPasses() as passes:
        return passes(NvmlQuery(processes=gpus)).held


def test_every_process_is_measured_with_its_context_on_every_gpu() -> None:
    with sim_box(machine(2, context_bytes=300 << 20)) as box:
        status = json.loads(box.program(ROOT / "tests/gpu/programs/nvml_status.py"))
        one, other = box.client(), box.client()
        assert [one("init()"), one("alloc(5 << 20)"), other("init(1)")] == [0, 0, 0]

        first, second = json.loads(box.program(ROOT / "tests/gpu/programs/nvml_memory.py"))

    a, b = (gpu.uuid for gpu in box.machine.topology.gpus)
    assert status == {a: [0, 0], b: [0, 0]}
    assert first == second == {a: {str(one.pid): 305 << 20}, b: {str(other.pid): 300 << 20}}


@pytest.mark.parametrize(
    ("functions", "found"),
    [
        pytest.param(
            {
                "DeviceGetComputeRunningProcesses": lambda _: [Running(7, 500)],
                "DeviceGetGraphicsRunningProcesses": lambda _: [Running(7, 500), Running(8, 30)],
            },
            {"GPU-0": {7: 500, 8: 30}, "GPU-1": {7: 500, 8: 30}},
            id="a process that also draws is counted once",
        ),
        pytest.param({"DeviceGetComputeRunningProcesses": lambda _: [Running(7, None)]},
                     {"GPU-0": {7: None}, "GPU-1": {7: None}},
                     id="a figure that is not told is not taken for nothing"),
        pytest.param(
            split(1)
            | {"DeviceGetComputeRunningProcesses": lambda handle: [Running(7, len(handle))]},
            {"MIG-GPU-0-0": {7: 11}, "MIG-GPU-0-2": {7: 11}},
            id="the instances of a split GPU are measured one by one",
        ),
        pytest.param({"DeviceGetHandleByIndex": of_first(LOST, lambda index: f"GPU-{index}")},
                     {"GPU-1": {}}, id="a lost GPU does not keep the others from being measured"),
    ],
)  # fmt: skip
def test_what_processes_hold(
    functions: Functions, found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, **functions)

    assert held() == found


def test_only_gpus_that_are_named_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls for which NVML asks the driver."""
    asked: Counter[str] = Counter()

    def counted(handle: str, *_: object) -> list[Any]:
        asked[handle] += 1
        return []

    processes = ("DeviceGetComputeRunningProcesses", "DeviceGetGraphicsRunningProcesses")
    functions: Functions = dict.fromkeys((*processes, "DeviceGetProcessUtilization"), counted)
    functions["DeviceGetUtilizationRates"] = lambda one: SimpleNamespace(gpu=len(counted(one)))
    functions["DeviceGetMigMode"] = lambda one: (len(counted(one)), 0)
    answers(monkeypatch, DeviceGetCount=lambda: 8, **functions)
    two = frozenset({GpuUUID("2"), GpuUUID("5")})

    for ask in (held, sampled):
        asked.clear()
        assert ask(two).keys() == asked.keys() == {"GPU-2", "GPU-5"}
        assert max(asked.values()) <= 2
        assert len(ask()) == 8


# Processes by drivers of each age: nvidia-ml-py itself over what each exports.

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


V2, V3 = pynvml.c_nvmlProcessInfo_v2_t, pynvml.c_nvmlProcessInfo_v3_t


@pytest.mark.parametrize(
    ("functions", "found"),
    [
        pytest.param({"_v3": exported(V3)}, [(7, 500), (8, None)], id="a new driver"),
        pytest.param({"_v2": exported(V2)}, [(7, 500), (8, None)], id="a driver with instances"),
        pytest.param({"": exported(RowBeforeInstances)}, [(7, 500), (8, None)], id="an old driver"),
        pytest.param({"_v2": exported(V2, ())}, [], id="a driver without processes"),
        pytest.param(
            {"_v2": exported(V2, ((7, 1),)), "": exported(RowBeforeInstances)},
            [(7, 1)],
            id="the newer of two ways is taken",
        ),
        pytest.param({"": lambda *_: pynvml.NVML_ERROR_GPU_IS_LOST}, 15, id="a refusal"),
        pytest.param({}, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, id="no such function"),
    ],
)
@pytest.mark.parametrize("kind", [COMPUTE, GRAPHICS])
def test_processes_are_listed_as_a_driver_of_that_age_can(
    kind: str, functions: dict[str, Exported], found: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pointer(name: str) -> Exported:
        version = name.removeprefix(kind)
        if version not in functions:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return functions[version]

    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", pointer)
    listed: object
    try:
        listed = [(one.pid, one.usedGpuMemory) for one in running(kind, "GPU-0")]
    except pynvml.NVMLError as error:
        listed = error.value

    assert listed == found


# How GPUs are.

REAL: Functions = {
    "DeviceGetMemoryInfo": lambda _, **_version: SimpleNamespace(used=5, total=10),
    "DeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=60),
    "DeviceGetTemperature": lambda *_: 41,
    "DeviceGetPowerUsage": lambda _: 70_500,
}


def status(used: int, *more: int | None) -> GpuStatus:
    return GpuStatus(used, *more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("functions", "found"),
    [
        pytest.param({}, status(5, 60, 41, 70_500), id="all is told"),
        pytest.param(dict.fromkeys([name for name in REAL if "Memory" not in name], UNSUPPORTED),
                     status(5), id="what a GPU does not tell is none"),
        pytest.param(
            {
                "DeviceGetMemoryInfo": UNSUPPORTED,
                "DeviceGetComputeRunningProcesses": lambda _: [Running(1, 3), Running(2, None)],
            },
            status(3, 60, 41, 70_500),
            id="without a memory figure a GPU uses what its processes hold",
        ),
        pytest.param({"DeviceGetUtilizationRates": lambda _: SimpleNamespace(gpu=250)},
                     status(5, 100, 41, 70_500), id="more than a hundred percent is a hundred"),
        pytest.param({"DeviceGetMemoryInfo": of_first(LOST, REAL["DeviceGetMemoryInfo"])}, None,
                     id="a GPU that is lost does not hide the other"),
    ],
)  # fmt: skip
def test_how_a_gpu_is(
    functions: Functions, found: GpuStatus | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, **(REAL | functions))

    with NvmlPasses() as passes:
        told = passes(NvmlQuery(status=True)).status or {}

    assert told.get(GpuUUID("GPU-0")) == found
    assert told[GpuUUID("GPU-1")] == (found or status(5, 60, 41, 70_500))


def test_no_driver_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, Init=refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED))

    with NvmlPasses() as passes, pytest.raises(NvmlError, match="modprobe"):
        passes(NvmlQuery(status=True))


# How busy processes keep GPUs.


@dataclass(frozen=True, slots=True)
class Sampled:
    """A row as NVML has it. age: seconds before now."""

    pid: int
    smUtil: int  # noqa: N815 - as pynvml calls it
    age: float = 0.1

    @property
    def timeStamp(self) -> int:  # noqa: N802
        return round((time.time() - self.age) * 1e6)


def busy(patch: pytest.MonkeyPatch, **functions: Callable[..., Any]) -> None:
    """One GPU, with one busy process."""
    usual: Functions = {
        "DeviceGetCount": lambda: 1,
        "DeviceGetProcessUtilization": lambda *_: [Sampled(7, 42)],
    }
    answers(patch, **(usual | functions))


def sampled(gpus: Gpus = None) -> UtilizationByGpu:
    with NvmlPasses() as passes:
        return passes(NvmlQuery(samples=gpus)).samples


def told(found: UtilizationByGpu) -> Told:
    return {
        gpu: None if one.samples is None else [(s.pid, s.percent) for s in one.samples]
        for gpu, one in found.items()
    }


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
    ],
)
def test_where_one_function_is_not_known_the_other_is_asked(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    other = {"DeviceGetProcessesUtilizationInfo": lambda *_: [Sampled(8, 7)]}
    busy(monkeypatch, DeviceGetProcessUtilization=refuse(code), **other)

    assert told(sampled()) == {"GPU-0": [(8, 7)]}


class OneMoreProcess:
    """It comes between count and list."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, *_: object) -> list[Sampled]:
        self.asked += 1
        if self.asked == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        return [Sampled(7, 42)]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        pytest.param(UNSUPPORTED, {"GPU-0": None}, id="a GPU that never tells"),
        pytest.param(refuse(pynvml.NVML_ERROR_NOT_FOUND), {"GPU-0": []}, id="nobody uses it"),
        pytest.param(refuse(pynvml.NVML_SUCCESS), {"GPU-0": []}, id="nobody uses it, as of old"),
        pytest.param(OneMoreProcess(), {"GPU-0": [(7, 42)]}, id="a list that grew is read again"),
        *(
            pytest.param(
                lambda *_, row=row: [row, Sampled(8, 5)],
                {"GPU-0": [(8, 5)]},
                id=f"a row that cannot be is dropped: {row}",
            )
            for row in (
                Sampled(7, 101),
                Sampled(7, 2**32 - 1),
                Sampled(0, 40),
                Sampled(7, 40, age=3600.0),
                Sampled(7, 40, age=-3600.0),
            )
        ),
    ],
)
def test_how_busy_processes_are(
    answer: Callable[..., Any], found: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy(monkeypatch, DeviceGetProcessUtilization=answer)

    assert told(sampled()) == found


def test_instances_and_lost_gpus_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    busy(monkeypatch, **split(1), DeviceGetProcessUtilization=UNSUPPORTED)
    assert told(sampled()) == {"MIG-GPU-0-0": None, "MIG-GPU-0-2": None}

    question = of_first(LOST, lambda *_: [Sampled(7, 42)])
    busy(monkeypatch, DeviceGetCount=lambda: 2, DeviceGetProcessUtilization=question)
    assert told(sampled()) == {"GPU-1": [(7, 42)]}


@pytest.mark.parametrize(
    ("rates", "found"),
    [
        (lambda _: SimpleNamespace(gpu=77), 77),
        (lambda _: SimpleNamespace(gpu=101), None),
        (UNSUPPORTED, None),
    ],
)
def test_how_busy_the_gpu_was_at_all_is_told_where_it_is_known(
    monkeypatch: pytest.MonkeyPatch, rates: Callable[..., Any], found: int | None
) -> None:
    busy(monkeypatch, DeviceGetUtilizationRates=rates)

    (answer,) = sampled().values()

    assert answer.busy == found


def test_a_sample_has_the_time_of_the_clock_that_everybody_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy(monkeypatch)

    (answer,) = sampled().values()

    assert answer.samples is not None
    assert abs(answer.asked_ns - answer.samples[0].ended_ns - 100_000_000) < 50_000_000
    assert abs(time.monotonic_ns() - answer.asked_ns) < 5_000_000_000


def test_only_what_is_newer_than_the_newest_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    newest = Sampled(7, 5).timeStamp

    def question(_handle: str, stamp: int) -> list[SimpleNamespace]:
        asked.append(stamp)
        rows: list[Mapping[str, int]] = [
            {"pid": 7, "smUtil": 5, "timeStamp": newest},
            {"pid": 8, "smUtil": 6, "timeStamp": newest - 10},
        ]
        return [SimpleNamespace(**row) for row in rows]

    busy(monkeypatch, DeviceGetProcessUtilization=question)
    with NvmlPasses() as passes:
        first, second = (told(passes(NvmlQuery(samples=None)).samples) for _ in range(2))

    assert first == {"GPU-0": [(7, 5), (8, 6)]}
    assert second == {"GPU-0": []}
    assert asked[1:] == [newest]


def test_a_clock_that_is_set_back_does_not_end_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    busy(monkeypatch)
    passes = NvmlPasses()
    passes(NvmlQuery(samples=None))
    real, behind = time.time_ns, 3600 * 10**9
    monkeypatch.setattr(time, "time_ns", lambda: real() - behind)
    busy(monkeypatch, DeviceGetProcessUtilization=lambda *_: [Sampled(7, 42, age=3600.1)])

    assert told(passes(NvmlQuery(samples=None)).samples) == {"GPU-0": [(7, 42)]}

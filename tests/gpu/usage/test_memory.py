"""What processes hold, by NVML: the real adapter on the simulated library, and its odd answers."""

import json
from dataclasses import dataclass

import pynvml
import pytest

from tests import ROOT
from tests.gpu.nvml_answers import answers, held
from tests.native.sim_box import machine, sim_box


def test_every_process_is_measured_with_its_context_on_every_gpu() -> None:
    with sim_box(machine(2, context_bytes=300 << 20)) as box:
        one, other = box.client(), box.client()
        assert [one("init()"), one("alloc(5 << 20)"), other("init(1)")] == [0, 0, 0]

        first, second = json.loads(box.program(ROOT / "tests/gpu/programs/nvml_memory.py"))

    a, b = (gpu.uuid for gpu in box.machine.topology.gpus)
    assert first == second == {a: {str(one.pid): 305 << 20}, b: {str(other.pid): 300 << 20}}


@dataclass(frozen=True, slots=True)
class Running:
    pid: int
    usedGpuMemory: int | None  # noqa: N815 - as pynvml calls it


def test_the_instances_of_a_split_gpu_are_measured_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def instance(device: str, index: int) -> str:
        if index == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return f"MIG-{device}-{index}"

    answers(
        monkeypatch,
        DeviceGetCount=lambda: 1,
        DeviceGetMigMode=lambda _: (1, 1),
        DeviceGetMaxMigDeviceCount=lambda _: 3,
        DeviceGetMigDeviceHandleByIndex=instance,
        DeviceGetComputeRunningProcesses=lambda handle: [Running(7, len(handle))],
    )

    assert held() == {"MIG-GPU-0-0": {7: 11}, "MIG-GPU-0-2": {7: 11}}


def test_a_figure_that_is_not_told_is_not_taken_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, DeviceGetComputeRunningProcesses=lambda _: [Running(7, None)])

    assert held() == {"GPU-0": {7: None}, "GPU-1": {7: None}}


def test_a_process_that_also_draws_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(
        monkeypatch,
        DeviceGetComputeRunningProcesses=lambda _: [Running(7, 500)],
        DeviceGetGraphicsRunningProcesses=lambda _: [Running(7, 500), Running(8, 30)],
    )

    assert held()["GPU-0"] == {7: 500, 8: 30}  # type: ignore[index]


def test_a_lost_gpu_does_not_keep_the_others_from_being_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def handle(index: int) -> str:
        if index == 0:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return f"GPU-{index}"

    answers(monkeypatch, DeviceGetHandleByIndex=handle)

    assert held() == {"GPU-1": {}}

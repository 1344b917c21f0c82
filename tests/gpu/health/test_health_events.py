"""Health by NVML where it answers otherwise than today's driver with whole GPUs does."""

import pynvml
import pytest

from gpumanager.gpu.health.events import NvmlHealth
from gpumanager.gpu.values import GpuUUID
from tests.gpu.nvml_answers import answers, refuse


def split(handle: str) -> tuple[int, int]:
    """GPU 1 is in MIG mode."""
    return (1, 1) if handle == "GPU-1" else (0, 0)


def test_a_split_gpu_is_not_listed_and_one_that_was_split_meanwhile_has_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers(monkeypatch, DeviceGetMigMode=split)
    source = NvmlHealth()

    assert source.gpus() == ("GPU-0",)
    assert source.probe(GpuUUID("GPU-0")).problem == ""
    assert "MIG" in source.probe(GpuUUID("GPU-1")).problem


def test_a_gpu_without_a_memory_figure_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, DeviceGetMemoryInfo=refuse(pynvml.NVML_ERROR_NOT_SUPPORTED))
    source = NvmlHealth()

    assert [source.probe(GpuUUID("GPU-0")).problem for _ in range(2)] == ["", ""]


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED]
)
def test_a_driver_without_a_wait_for_events_is_only_probed(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    waited: list[int] = []

    def wait(_: object, milliseconds: int) -> None:
        waited.append(milliseconds)
        refuse(code)()

    answers(monkeypatch, EventSetWait_v2=wait)
    pauses: list[float] = []
    source = NvmlHealth(pause=pauses.append)

    assert [source.wait(0.5), source.wait(0.5)] == [(), ()]
    source.probe(GpuUUID("GPU-0"))
    assert source.wait(0.5) == ()
    assert not source.tells_events()
    assert waited == [500]
    assert pauses == [0.5, 0.5, 0.5]

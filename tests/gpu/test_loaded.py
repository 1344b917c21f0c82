"""The version of CUDA that a driver knows."""

import threading

import pynvml
import pytest

from gpumanager.gpu import device_attributes
from gpumanager.gpu.device_attributes import LoadedDriver
from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.nvml_service import NvmlService


@pytest.mark.parametrize(("number", "text"), [(12050, "12.5"), (13000, "13.0"), (11080, "11.8")])
async def test_a_version_is_written_as_people_do(
    monkeypatch: pytest.MonkeyPatch, number: int, text: str
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion", lambda: number)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "555.58.02")

    assert await device_attributes.cuda_version(NvmlService()) == text


async def test_without_a_driver_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> LoadedDriver:
        raise NvmlError("no driver")

    monkeypatch.setattr(device_attributes, "loaded_driver", absent)

    assert await device_attributes.cuda_version(NvmlService()) == ""


async def test_a_driver_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(device_attributes, "loaded_driver", lambda: answer.wait(120) and None)

    assert await device_attributes.cuda_version(NvmlService(), 0.01) == ""

    answer.set()

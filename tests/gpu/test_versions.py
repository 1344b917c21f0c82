"""The version of CUDA that a driver knows."""

import threading

import pynvml
import pytest

from gpumanager.gpu import versions
from gpumanager.gpu.nvml import NvmlError


@pytest.mark.parametrize(("number", "text"), [(12050, "12.5"), (13000, "13.0"), (11080, "11.8")])
async def test_a_version_is_written_as_people_do(
    monkeypatch: pytest.MonkeyPatch, number: int, text: str
) -> None:
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: number)

    assert await versions.cuda_version() == text


async def test_without_a_driver_there_is_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> int:
        raise NvmlError("no driver")

    monkeypatch.setattr(versions, "_ask", absent)

    assert await versions.cuda_version() == ""


async def test_a_driver_that_does_not_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(versions, "_ask", lambda: answer.wait(20) and 12050)

    assert await versions.cuda_version(0.01) == ""

    answer.set()

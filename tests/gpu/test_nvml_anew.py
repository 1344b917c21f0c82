"""NVML that failed, under a driver that was updated say: whoever asks it opens it anew."""

from collections.abc import Callable, Mapping
from typing import Any

import pynvml
import pytest

from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.usage.process_memory import NvmlMeter
from gpumanager.gpu.usage.utilization import NvmlUtilization
from tests.gpu.nvml_answers import answers, refuse


@pytest.mark.parametrize(
    ("make", "asking"),
    [
        (NvmlMeter, "asking what processes hold"),
        (NvmlUtilization, "asking how busy processes keep the GPUs"),
    ],
)
def test_nvml_that_fails_is_opened_anew_at_the_next_question(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], Callable[[], Mapping[Any, Any]]],
    asking: str,
) -> None:
    opened: list[int] = []
    failing = refuse(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    answers(monkeypatch, Init=lambda: opened.append(1), DeviceGetCount=failing)
    meter = make()

    with pytest.raises(NvmlError, match=asking):
        meter()
    answers(monkeypatch, Init=lambda: opened.append(1))

    assert set(meter()) == {"GPU-0", "GPU-1"}
    assert len(opened) == 2

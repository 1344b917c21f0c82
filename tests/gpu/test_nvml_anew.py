"""NVML that failed, under a driver that was updated say: whoever asks it opens it anew."""

import pynvml
import pytest

from gpumanager.gpu.nvml import NvmlError
from gpumanager.gpu.usage.nvml_pass import NvmlPasses, NvmlQuery
from tests.gpu.nvml_answers import answers, refuse


@pytest.mark.parametrize("query", [NvmlQuery(processes=None), NvmlQuery(samples=None)])
def test_nvml_that_fails_is_opened_anew_at_the_next_question(
    monkeypatch: pytest.MonkeyPatch, query: NvmlQuery
) -> None:
    opened: list[int] = []
    failing = refuse(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    answers(monkeypatch, Init=lambda: opened.append(1), DeviceGetCount=failing)
    passes = NvmlPasses()

    with pytest.raises(NvmlError, match="asking what the GPUs do"):
        passes(query)
    answers(monkeypatch, Init=lambda: opened.append(1))

    reading = passes(query)
    assert set(reading.held or reading.samples) == {"GPU-0", "GPU-1"}
    assert len(opened) == 2

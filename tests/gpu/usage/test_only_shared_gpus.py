"""Of which GPUs NVML is asked: of those that somebody wants to know about."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpumanager.gpu.values import GpuUUID
from tests.gpu.nvml_answers import answers, held, sampled

ASKED = (
    "DeviceGetComputeRunningProcesses",
    "DeviceGetGraphicsRunningProcesses",
    "DeviceGetProcessUtilization",
)
"""What NVML has to ask the driver for."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the driver was asked of each of eight GPUs."""
    calls: Counter[str] = Counter()

    def counted(*arguments: Any) -> list[Any]:
        calls[arguments[0]] += 1
        return []

    def rates(handle: str) -> SimpleNamespace:
        counted(handle)
        return SimpleNamespace(gpu=0)

    def split(handle: str) -> tuple[int, int]:
        counted(handle)
        return 0, 0

    functions: dict[str, Callable[..., Any]] = dict.fromkeys(ASKED, counted)
    functions |= {"DeviceGetUtilizationRates": rates, "DeviceGetMigMode": split}
    answers(monkeypatch, DeviceGetCount=lambda: 8, **functions)
    return calls


@pytest.mark.parametrize("ask", [held, sampled])
def test_only_gpus_that_are_named_are_asked(asked: Counter[str], ask: Callable[..., Any]) -> None:
    found = ask(frozenset({GpuUUID("2"), GpuUUID("5")}))

    assert found.keys() == asked.keys() == {"GPU-2", "GPU-5"}
    assert max(asked.values()) <= 2


@pytest.mark.parametrize("ask", [held, sampled])
def test_all_are_asked_where_none_is_named(asked: Counter[str], ask: Callable[..., Any]) -> None:
    assert len(ask()) == len(asked) == 8

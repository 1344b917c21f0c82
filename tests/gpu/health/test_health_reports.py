"""What the cluster is told: each change once, and the state there is."""

from typing import Any

import pytest

from gpumanager.gpu.health.reports import condition_of, events_between
from gpumanager.gpu.health.state import (
    GpuHealth,
    HealthEvent,
    NodeHealth,
    NvmlState,
    ProbeResult,
    RecoveryPolicy,
    after_event,
    after_probe,
)
from gpumanager.gpu.health.xids import Checks
from gpumanager.gpu.values import GpuUUID

A, B = GpuUUID("GPU-a"), GpuUUID("GPU-b")
FINE = NodeHealth(nvml=NvmlState.ANSWERS).knowing([A, B])


def xid(health: NodeHealth, gpu: GpuUUID, code: int) -> NodeHealth:
    known = health.of(gpu) or GpuHealth(gpu)
    return health.changed(
        after_event(known, HealthEvent(gpu, code), 1.0, Checks(), RecoveryPolicy())
    )


def test_a_fall_is_a_warning_that_names_the_gpu_and_what_becomes_of_its_containers() -> None:
    (event,) = events_between(FINE, xid(FINE, A, 79))

    assert event.warning
    assert event.reason == "GpuXid"
    assert event.message.startswith("GPU-a is out of use: Xid 79")
    assert "its containers keep it" in event.message


DOWN = xid(FINE, A, 79)
FAILS = NodeHealth(FINE.gpus, NvmlState.FAILS, "opening NVML: no driver")


def probed(health: NodeHealth, gpu: GpuUUID, **found: Any) -> NodeHealth:
    known = health.of(gpu)
    assert known is not None
    return health.changed(after_probe(known, ProbeResult(**found), 2.0, RecoveryPolicy()))


PENDING = probed(FINE, B, remap_pending=True)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        pytest.param(DOWN, DOWN, [], id="what has not changed is not told again"),
        pytest.param(DOWN, xid(DOWN, A, 79), [], id="nor is the same cause"),
        pytest.param(DOWN, probed(DOWN, A, problem="it needs a reset"), [(True, "GpuLost")],
                     id="another cause is told"),
        pytest.param(DOWN, FINE, [(False, "GpuRecovered")], id="a recovery is no warning"),
        pytest.param(FINE, PENDING, [(True, "GpuNeedsAttention")], id="a row to be replaced"),
        pytest.param(PENDING, PENDING, [], id="is told once"),
        pytest.param(FINE, FAILS, [(True, "NvmlUnavailable")], id="the library fails"),
        pytest.param(FAILS, FAILS, [], id="which is told once"),
        pytest.param(FAILS, FINE, [(False, "NvmlAvailable")], id="and so is its return"),
        pytest.param(NodeHealth().knowing([A, B]), FINE, [], id="but not its first answer"),
    ],
)  # fmt: skip
def test_each_change_is_told_once(
    before: NodeHealth, after: NodeHealth, told: list[tuple[bool, str]]
) -> None:
    assert [(event.warning, event.reason) for event in events_between(before, after)] == told


def test_a_program_that_faults_by_the_thousand_is_told_of_a_few_times() -> None:
    health, told = FINE, 0
    for _ in range(1000):
        before, health = health, xid(health, B, 31)
        told += len(events_between(before, health))

    assert told == 4


def test_the_condition_is_false_with_a_bad_gpu_and_unknown_without_an_answer() -> None:
    bad = condition_of(xid(FINE, B, 48))
    silent = condition_of(NodeHealth(FINE.gpus, NvmlState.SILENT, "no answer"))

    assert (condition_of(FINE).status, condition_of(FINE).message) == (
        True,
        "2 GPUs are fit for use",
    )
    assert bad.status is False
    assert "GPU-b is out of use" in bad.message
    assert "GPU-a" not in bad.message
    assert (silent.status, silent.message) == (None, "no answer")
    assert condition_of(NodeHealth(nvml=NvmlState.FAILS, problem="x")).status is False
    assert condition_of(NodeHealth()).status is None

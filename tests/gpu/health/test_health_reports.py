"""What the cluster is told: each change once, and the state there is."""

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


def reasons(before: NodeHealth, after: NodeHealth) -> list[tuple[bool, str]]:
    return [(event.warning, event.reason) for event in events_between(before, after)]


def test_a_fall_is_a_warning_that_names_the_gpu_and_what_becomes_of_its_containers() -> None:
    (event,) = events_between(FINE, xid(FINE, A, 79))

    assert event.warning
    assert event.reason == "GpuXid"
    assert event.message.startswith("GPU-a is out of use: Xid 79")
    assert "its containers keep it" in event.message


def test_what_has_not_changed_is_not_told_again() -> None:
    down = xid(FINE, A, 79)

    assert reasons(down, down) == []
    assert reasons(down, xid(down, A, 79)) == []


def test_another_cause_is_told() -> None:
    down = xid(FINE, A, 79)
    lost = down.of(A)
    assert lost is not None
    after = after_probe(lost, ProbeResult(problem="it needs a reset"), 2.0, RecoveryPolicy())

    assert reasons(down, down.changed(after)) == [(True, "GpuLost")]


def test_a_recovery_is_told_and_is_no_warning() -> None:
    assert reasons(xid(FINE, A, 79), FINE) == [(False, "GpuRecovered")]


def test_a_program_that_faults_by_the_thousand_is_told_of_a_few_times() -> None:
    health, told = FINE, 0
    for _ in range(1000):
        before, health = health, xid(health, B, 31)
        told += len(events_between(before, health))

    assert told == 4


def test_a_row_to_be_replaced_is_told_once() -> None:
    known = FINE.of(B)
    assert known is not None
    after = FINE.changed(after_probe(known, ProbeResult(remap_pending=True), 1.0, RecoveryPolicy()))

    assert reasons(FINE, after) == [(True, "GpuNeedsAttention")]
    assert reasons(after, after) == []


def test_the_librarys_failure_is_told_once_and_so_is_its_return() -> None:
    fails = NodeHealth(FINE.gpus, NvmlState.FAILS, "opening NVML: no driver")

    assert reasons(FINE, fails) == [(True, "NvmlUnavailable")]
    assert reasons(fails, fails) == []
    assert reasons(fails, FINE) == [(False, "NvmlAvailable")]
    assert reasons(NodeHealth().knowing([A, B]), FINE) == []


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

"""A GPU's health as a state machine: down at once, back after good time, never flapping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.gpu.health.state import (
    GpuHealth,
    HealthEvent,
    HealthReason,
    ProbeResult,
    RecoveryPolicy,
    after_event,
    after_probe,
)
from gpumanager.gpu.health.xids import Checks
from gpumanager.gpu.values import GpuUUID

GPU = GpuUUID("GPU-0")
CHECKS = Checks()
PATIENCE = RecoveryPolicy(probes=3, transient=30, fatal=120, longest=1000, relapse=600)
GOOD = ProbeResult()
LOST = ProbeResult(problem="it has fallen off the bus")


def xid(health: GpuHealth, code: int, now: float) -> GpuHealth:
    return after_event(health, HealthEvent(GPU, code), now, CHECKS, PATIENCE)


def probe(health: GpuHealth, now: float, finding: ProbeResult = GOOD) -> GpuHealth:
    return after_probe(health, finding, now, PATIENCE)


def good_until(health: GpuHealth, begin: int, end: int) -> GpuHealth:
    """Good probes, one every ten seconds."""
    for now in range(begin, end + 1, 10):
        health = probe(health, now)
    return health


@pytest.mark.parametrize("code", [13, 31, 63, 154])
def test_an_xid_that_does_no_harm_is_counted_and_that_is_all(code: int) -> None:
    health = xid(xid(GpuHealth(GPU), code, 1), code, 2)

    assert health == GpuHealth(GPU, xids={code: 2})


def test_a_harmful_xid_takes_the_gpu_out_of_use_at_once() -> None:
    health = xid(GpuHealth(GPU), 79, 5)

    assert (health.healthy, health.since, health.quiet) == (False, 5, 120)
    assert health.cause is not None
    assert health.cause.reason is HealthReason.XID
    assert "Xid 79 (GPU has fallen off the bus)" in health.cause.text


@pytest.mark.parametrize(("code", "seconds"), [(4711, 30), (79, 120)])
def test_a_gpu_is_back_after_good_probes_over_the_time_that_its_fall_asks_for(
    code: int, seconds: int
) -> None:
    fallen = xid(GpuHealth(GPU), code, 0)

    assert not good_until(fallen, 10, seconds).healthy
    back = good_until(fallen, 10, seconds + 10)
    assert (back.healthy, back.since) == (True, seconds + 10)


def test_what_happens_while_it_is_down_can_only_lengthen_the_wait() -> None:
    fallen = xid(GpuHealth(GPU), 79, 0)

    after = xid(fallen, 4711, 10)

    assert (after.quiet, after.falls, after.since) == (120, 1, 0)


def test_each_relapse_doubles_the_wait_up_to_a_bound() -> None:
    health, now, waits = GpuHealth(GPU), 0.0, []
    for _ in range(7):
        health = xid(health, 4711, now)
        waits.append(health.quiet)
        now += 1
        while not health.healthy:
            health = probe(health, now)
            now += 10
        now += 1

    assert waits == [30, 60, 120, 240, 480, 960, 1000]


def test_a_fall_long_after_a_recovery_is_a_first_one() -> None:
    health = good_until(xid(GpuHealth(GPU), 4711, 0), 10, 40)

    assert xid(health, 4711, 40 + 599).falls == 2
    assert xid(health, 4711, 40 + 600).falls == 1


@pytest.mark.parametrize(
    ("finding", "reason"),
    [
        (LOST, HealthReason.LOST),
        (ProbeResult(remap_failed=True), HealthReason.REMAP_FAILED),
        (ProbeResult(recovery="reset this GPU"), HealthReason.RECOVERY),
    ],
)
def test_what_a_probe_finds_keeps_the_gpu_down_for_as_long_as_it_lasts(
    finding: ProbeResult, reason: HealthReason
) -> None:
    health = GpuHealth(GPU)
    for now in range(0, 5000, 10):
        health = probe(health, now, finding)

    assert not health.healthy
    assert health.falls == 1
    assert health.cause is not None
    assert health.cause.reason is reason


def test_memory_errors_harm_when_they_become_more_not_by_being_there() -> None:
    known = probe(GpuHealth(GPU), 0, ProbeResult(double_bits=3))
    assert known.healthy

    more = probe(known, 10, ProbeResult(double_bits=4))
    assert not more.healthy

    reset = probe(known, 10, ProbeResult(double_bits=0))
    assert (reset.healthy, reset.double_bits) == (True, 0)


def test_a_memory_error_that_is_told_as_an_event_harms_unless_events_do_not_count() -> None:
    event = HealthEvent(GPU)

    assert not after_event(GpuHealth(GPU), event, 0, Checks(), PATIENCE).healthy
    assert after_event(GpuHealth(GPU), event, 0, Checks(xids=False), PATIENCE).healthy


def test_a_row_that_waits_for_its_replacement_asks_for_attention_and_no_more() -> None:
    health = probe(GpuHealth(GPU), 0, ProbeResult(remap_pending=True))

    assert health.healthy
    assert "next reset" in health.attention
    assert probe(health, 10).attention == ""


FINDINGS = st.sampled_from([GOOD, GOOD, GOOD, LOST, ProbeResult(remap_failed=True)])
STEPS = st.lists(
    st.tuples(st.floats(0.1, 60), st.one_of(FINDINGS, st.sampled_from([13, 79, 4711]))),
    max_size=200,
)


@given(STEPS)
def test_whatever_happens_a_gpu_never_flaps(steps: list[tuple[float, ProbeResult | int]]) -> None:
    """Down at once after harm; up only after good probes in a row over the whole quiet time."""
    health, now, last_harm = GpuHealth(GPU), 0.0, 0.0
    good: list[float] = []
    for pause, what in steps:
        now += pause
        before = health
        health = xid(health, what, now) if isinstance(what, int) else probe(health, now, what)
        harm = what in {79, 4711} if isinstance(what, int) else what != GOOD
        good = [] if harm else good + [now] * isinstance(what, ProbeResult)
        last_harm = now if harm else last_harm
        if harm:
            assert not health.healthy
        if health.healthy and not before.healthy:
            assert len(good) >= PATIENCE.probes
            assert now - good[0] >= before.quiet >= PATIENCE.transient
            assert last_harm < good[0]

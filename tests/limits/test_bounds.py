"""What bounds a container: how often it may call, and what it can have the log say."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.limits.socket.bounds import SUMMARY_SECONDS, RepeatedLog, TokenBucket
from gpumanager.sim.in_memory import ManualClock

LOG = logging.getLogger("gpumanager.test")


def test_a_line_is_logged_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    said = RepeatedLog(LOG, "one", clock=clock)

    for number in range(1000):
        said.say(logging.INFO, "refused", f"refused: {number}")
        said.summarize()
    assert caplog.messages == ["one: refused: 0"]

    clock.now = SUMMARY_SECONDS
    said.summarize()
    said.summarize()

    assert caplog.messages[1:] == ["one: 999 more in 60 s, the last: refused: 999"]


def test_kinds_are_told_apart(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    said = RepeatedLog(LOG, "one")

    said.say(logging.INFO, 1, "a")
    said.say(logging.INFO, 2, "b")

    assert caplog.messages == ["one: a", "one: b"]


def test_a_burst_is_taken_at_once_and_comes_back_with_time() -> None:
    bucket = TokenBucket(rate=10, burst=5)

    assert [bucket.take(0.0) for _ in range(6)] == [True] * 5 + [False]
    assert [bucket.take(0.25) for _ in range(3)] == [True, True, False]


def test_who_wants_more_than_there_can_be_takes_all() -> None:
    bucket = TokenBucket(rate=10, burst=5)

    assert bucket.take(0.0, tokens=1000)
    assert not bucket.take(0.4, tokens=1000)
    assert bucket.take(0.6, tokens=1000)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 10)), max_size=50))
def test_no_more_is_taken_than_has_come(asked: list[tuple[float, float]]) -> None:
    bucket, now, taken = TokenBucket(rate=10, burst=5), 0.0, 0.0

    for later, tokens in asked:
        now += later
        taken += min(tokens, 5) * bucket.take(now, tokens)
        assert taken <= 5 + 10 * now + 1e-6

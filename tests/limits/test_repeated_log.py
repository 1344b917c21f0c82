"""Lines that a container can cause as often as it likes."""

import logging

import pytest

from gpumanager.limits.socket.bounds import SUMMARY_SECONDS, RepeatedLog
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

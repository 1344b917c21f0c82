"""What is measured beside a watch on the machine fails where the machine cannot be to blame."""

import pytest

from tests.sim.host_watch import HostWatch


def test_who_is_kept_from_running_sees_a_busy_machine() -> None:
    with HostWatch() as host:
        for _ in range(30):
            sum(range(500_000))  # without a pause in which another thread would run

    assert host.busy
    with pytest.raises(pytest.skip.Exception, match="late by"):
        host.expect("a share", holds=False)
    host.expect("a share", holds=True)


def test_what_is_wrong_while_nobody_was_late_fails() -> None:
    with pytest.raises(AssertionError, match="a share"):
        HostWatch().expect("a share", holds=False)

"""What is measured beside a watch on the machine fails where the machine cannot be to blame."""

import pytest

from gpumanager.sim import host_watch
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


def test_a_programs_own_work_makes_the_machine_no_busier() -> None:
    with host_watch.HostWatch() as kernel, HostWatch() as all_in_all:
        for _ in range(30):
            sum(range(500_000))

    assert kernel.late < all_in_all.late

"""Containers that go on taking GPU time outside of their turns."""

import pytest

from gpumanager.compute.audit import SECOND
from gpumanager.compute.overdraft import HELD_NS, TERM_NS, Overdraft

TICK = SECOND // 10


def played(account: Overdraft, outside: float, turns: float, seconds: float) -> float:
    """Parts of the time, of a container of 30 %. Outside of turns it is found each half second, and
    not while frozen. Returns the part of the time that it took."""
    took = owed = 0.0
    for look in range(1, round(seconds * 10) + 1):
        runs = not account.paused
        owed += outside * TICK * runs
        took += (outside + turns) * TICK * runs
        found, owed = (owed, 0.0) if look % 5 == 0 else (0.0, owed)
        account.look(account.at + TICK, round(turns * TICK * runs), round(found), 0.3)
    return took / (seconds * SECOND)


def bypassed(outside: float, turns: float, seconds: float) -> Overdraft:
    account = Overdraft(0)
    played(account, outside, turns, seconds)
    return account


def test_turns_that_were_granted_are_no_overdraft_however_many() -> None:
    assert not bypassed(0.0, 1.0, 600).held


def test_a_mistake_of_the_audit_is_no_overdraft() -> None:
    account = Overdraft(0)

    account.look(TICK, 0, HELD_NS, 0.3)

    assert not account.held


@pytest.mark.parametrize(("outside", "turns"), [(0.5, 0.2), (1.0, 0.0), (0.2, 0.3)])
def test_who_launches_out_of_turn_is_held_to_its_guarantee_in_all(
    outside: float, turns: float
) -> None:
    account = bypassed(outside, turns, 15)
    assert account.held

    assert played(account, outside, turns, 40) == pytest.approx(0.3, abs=0.05)


def test_who_launches_out_of_turn_for_half_of_the_time_is_held_within_four_seconds() -> None:
    assert not bypassed(0.5, 0.2, 3.4).held
    assert bypassed(0.5, 0.2, 3.5).held


def test_who_was_held_and_takes_its_turns_again_is_let_go() -> None:
    account = bypassed(0.5, 0.2, 10)

    assert played(account, 0.0, 0.29, 5 * TERM_NS / SECOND) == pytest.approx(0.29, abs=0.01)

    assert not account.held


def test_who_is_found_out_again_is_held_for_longer() -> None:
    account = bypassed(0.5, 0.2, 10)
    played(account, 0.0, 0.2, 5 * TERM_NS / SECOND)
    assert not account.held

    played(account, 0.5, 0.2, 10)
    played(account, 0.0, 0.2, 3 * TERM_NS / SECOND)

    assert account.held

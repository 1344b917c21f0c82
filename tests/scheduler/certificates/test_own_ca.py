"""What becomes of our own certificates with time."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.certificates.own_ca import (
    AUTHORITY_LIFE,
    SERVING_LIFE,
    CaState,
    from_secret,
    renew,
    to_secret,
)
from gpumanager.scheduler.certificates.x509 import CertificateTrouble, read_certificate
from tests.scheduler.certificates.certificate_world import (
    HOST,
    NAMES,
    Clock,
    authorities_of,
    believes,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begin(clock: Clock) -> CaState:
    return renew(None, clock(), NAMES)


def test_what_is_made_first_is_believed_under_each_of_its_names(clock: Clock) -> None:
    state = begin(clock)

    for name in NAMES:
        assert believes(state.authority.certificate, state.serving.certificate, clock(), name)
    assert not believes(
        state.authority.certificate, state.serving.certificate, clock(), "another.svc"
    )
    state.serving.context()


def test_while_nothing_is_due_nothing_changes(clock: Clock) -> None:
    state = begin(clock)
    clock.move(days=59)

    assert renew(state, clock(), NAMES) is state


def test_a_serving_certificate_is_made_anew_well_before_it_ends(clock: Clock) -> None:
    state = begin(clock)
    clock.move(days=61)

    after = renew(state, clock(), NAMES)

    assert read_certificate(after.serving.certificate).not_after == clock() + SERVING_LIFE
    assert after.authority.certificate == state.authority.certificate


def test_a_server_that_gets_another_name_gets_a_certificate_for_it(clock: Clock) -> None:
    after = renew(begin(clock), clock(), ("other.svc",))

    assert believes(after.authority.certificate, after.serving.certificate, clock(), "other.svc")


def joined_by_another(clock: Clock) -> tuple[CaState, CaState]:
    """The last state with one authority, and the first with two."""
    before = after = begin(clock)
    while len(authorities_of(after.authority.certificate)) == 1:
        clock.move(days=1)
        before, after = after, renew(after, clock(), NAMES)
    return before, after


def test_a_new_authority_is_announced_for_weeks_before_it_signs(clock: Clock) -> None:
    first, joined = joined_by_another(clock)

    assert believes(first.authority.certificate, joined.serving.certificate, clock())
    clock.move(days=59)
    assert renew(joined, clock(), NAMES) is joined
    clock.move(days=2)
    signed = renew(joined, clock(), NAMES)
    assert signed.authority == joined.authority
    assert believes(joined.authority.certificate, signed.serving.certificate, clock())
    assert not believes(first.authority.certificate, signed.serving.certificate, clock())


def test_an_expired_authority_leaves_the_bundle(clock: Clock) -> None:
    state = begin(clock)
    for _ in range(100):
        clock.move(days=20)
        state = renew(state, clock(), NAMES)

        assert len(authorities_of(state.authority.certificate)) <= 2


@pytest.mark.parametrize("life", [SERVING_LIFE, AUTHORITY_LIFE])
def test_what_has_ended_is_begun_anew_at_once(clock: Clock, life: timedelta) -> None:
    state = begin(clock)
    clock.move(seconds=life.total_seconds())

    after = renew(state, clock(), NAMES)

    assert after.authority != state.authority
    assert believes(after.authority.certificate, after.serving.certificate, clock())


def test_what_a_clock_made_that_was_ahead_is_made_anew(clock: Clock) -> None:
    clock.move(hours=8)
    state = begin(clock)
    clock.move(hours=-8)

    after = renew(state, clock(), NAMES)

    assert believes(after.authority.certificate, after.serving.certificate, clock())


def test_where_only_what_is_served_was_made_too_early_the_authority_stays(clock: Clock) -> None:
    state = begin(clock)
    clock.move(days=61)
    ahead = renew(state, clock(), NAMES)
    clock.move(days=-1)

    after = renew(ahead, clock(), NAMES)

    assert after.authority.certificate == state.authority.certificate
    assert believes(after.authority.certificate, after.serving.certificate, clock())


@given(st.lists(st.tuples(st.floats(0.01, 50), st.booleans()), min_size=1, max_size=60))
def test_whoever_has_the_bundle_of_the_last_renewal_believes_what_the_next_one_serves(
    looks: list[tuple[float, bool]],
) -> None:
    """looks: days since the last one, and whether the bundle could be written then."""
    clock = Clock()
    state = begin(clock)
    known = state.authority.certificate
    unwritten = 0.0
    for days, reachable in looks:
        clock.move(days=days)
        before, state = state, renew(state, clock(), NAMES)
        unwritten = 0 if reachable else unwritten + days
        if unwritten > 50 or not believes(known, before.serving.certificate, clock()):
            known = state.authority.certificate  # was away for so long that it begins anew
        assert believes(known, state.serving.certificate, clock(), HOST)
        if reachable:
            known = state.authority.certificate
        assert believes(known, state.serving.certificate, clock(), HOST)


def test_a_secret_keeps_everything(clock: Clock) -> None:
    for state in joined_by_another(clock):
        assert from_secret(to_secret(state)) == state


def test_a_secret_without_anything_in_it_is_to_be_filled() -> None:
    assert from_secret({}) is None
    assert from_secret({"ca.crt": ""}) is None


@pytest.mark.parametrize(
    "damage",
    [{"ca.key": ""}, {"tls.crt": "bm90IG9uZQ=="}, {"tls.crt": "%"}, {"ca.crt": None}],
    ids=str,
)
def test_a_damaged_secret_is_an_error(clock: Clock, damage: dict[str, str]) -> None:
    with pytest.raises(CertificateTrouble):
        from_secret({**to_secret(begin(clock)), **damage})


def test_a_key_is_never_shown_by_accident(clock: Clock) -> None:
    assert "PRIVATE" not in repr(begin(clock))

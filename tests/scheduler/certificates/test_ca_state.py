"""What becomes of our own certificates with time."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.scheduler.certificates.ca_state import (
    AUTHORITY_LIFE,
    PROPAGATION,
    RETIRED_CA_KEPT,
    SERVING_LIFE,
    CaState,
    from_secret,
    step,
    to_secret,
)
from gpumanager.scheduler.certificates.x509 import (
    CertificateTrouble,
    read_certificate,
    split_bundle,
)
from tests.scheduler.certificates.certificate_world import HOST, NAMES, Clock, believes

LONG_AGO = timedelta(days=1)
SOON = timedelta(minutes=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def begin(clock: Clock) -> CaState:
    return step(None, clock(), NAMES, announced=None)


def test_what_is_made_first_is_believed_under_each_of_its_names(clock: Clock) -> None:
    state = begin(clock)

    for name in NAMES:
        assert believes(state.trusted, state.serving.certificate, clock(), name)
    assert not believes(state.trusted, state.serving.certificate, clock(), "another.svc")
    state.serving.context()


def test_while_nothing_is_due_nothing_changes(clock: Clock) -> None:
    state = begin(clock)
    clock.move(days=59)

    assert step(state, clock(), NAMES, announced=LONG_AGO) is state


def test_a_serving_certificate_is_made_anew_well_before_it_ends(clock: Clock) -> None:
    state = begin(clock)
    clock.move(days=61)

    after = step(state, clock(), NAMES, announced=None)

    assert read_certificate(after.serving.certificate).not_after == clock() + SERVING_LIFE
    assert after.trusted == state.trusted


def test_a_server_that_gets_another_name_gets_a_certificate_for_it(clock: Clock) -> None:
    after = step(begin(clock), clock(), ("other.svc",), announced=LONG_AGO)

    assert believes(after.trusted, after.serving.certificate, clock(), "other.svc")


def coming(clock: Clock) -> CaState:
    """A second authority is made, and not announced."""
    state = begin(clock)
    while state.next is None:
        clock.move(days=1)
        state = step(state, clock(), NAMES, announced=None)
    return state


def test_an_authority_that_grows_old_is_joined_by_another_which_signs_nothing_yet(
    clock: Clock,
) -> None:
    state = coming(clock)

    assert len(split_bundle(state.trusted)) == 2
    assert step(state, clock(), NAMES, announced=SOON) is state
    assert step(state, clock(), NAMES, announced=None) is state


def test_when_it_has_been_announced_for_long_it_signs_and_both_are_believed(clock: Clock) -> None:
    before = coming(clock)

    after = step(before, clock(), NAMES, announced=PROPAGATION)

    assert after.trusted == before.trusted
    assert believes(after.authority.certificate, after.serving.certificate, clock())
    assert believes(before.trusted, after.serving.certificate, clock())


def test_the_former_authority_leaves_the_bundle_when_nobody_serves_by_it(clock: Clock) -> None:
    state = step(coming(clock), clock(), NAMES, announced=PROPAGATION)

    clock.move(seconds=RETIRED_CA_KEPT.total_seconds() - 60)
    assert step(state, clock(), NAMES, announced=None) is state
    clock.move(seconds=60)
    after = step(state, clock(), NAMES, announced=None)

    assert after.trusted == after.authority.certificate


def test_while_a_new_authority_cannot_be_announced_the_old_one_goes_on_signing(
    clock: Clock,
) -> None:
    state = begin(clock)

    for _ in range(364):
        clock.move(days=1)
        state = step(state, clock(), NAMES, announced=None)
        assert believes(state.authority.certificate, state.serving.certificate, clock())
    assert state.next is not None


@pytest.mark.parametrize("life", [SERVING_LIFE, AUTHORITY_LIFE])
def test_what_has_ended_is_begun_anew_at_once(clock: Clock, life: timedelta) -> None:
    state = begin(clock)
    clock.move(seconds=life.total_seconds())

    after = step(state, clock(), NAMES, announced=None)

    assert after.authority != state.authority
    assert believes(after.trusted, after.serving.certificate, clock())


def test_what_a_clock_made_that_was_ahead_is_made_anew(clock: Clock) -> None:
    clock.move(hours=8)
    state = begin(clock)
    clock.move(hours=-8)

    after = step(state, clock(), NAMES, announced=LONG_AGO)

    assert believes(after.trusted, after.serving.certificate, clock())


def test_where_only_what_is_served_was_made_too_early_the_authority_stays(clock: Clock) -> None:
    state = begin(clock)
    clock.move(days=61)
    ahead = step(state, clock(), NAMES, announced=None)
    clock.move(days=-1)

    after = step(ahead, clock(), NAMES, announced=None)

    assert after.trusted == state.trusted
    assert believes(after.trusted, after.serving.certificate, clock())


@given(st.lists(st.tuples(st.floats(0.01, 40), st.booleans()), min_size=1, max_size=60))
def test_whenever_anybody_looks_what_is_served_is_believed_by_who_has_the_bundle_since_settled(
    looks: list[tuple[float, bool]],
) -> None:
    """looks: days since the last one, and whether the bundle could be written then.

    Who connects has the bundle as it was announced at least `PROPAGATION` ago, or newer.
    """
    clock = Clock()
    state = begin(clock)
    known = state.trusted
    since = clock()
    for days, reachable in looks:
        clock.move(days=days)
        announced = clock() - since if known == state.trusted else None
        parts = (state.serving.certificate, state.authority.certificate)
        over = any(read_certificate(one).not_after <= clock() for one in parts)
        state = step(state, clock(), NAMES, announced=announced)
        if over:
            known, since = state.trusted, clock()  # who was away for so long begins anew
        assert believes(known, state.serving.certificate, clock(), HOST)
        if reachable and known != state.trusted:
            known, since = state.trusted, clock()
        assert believes(known, state.serving.certificate, clock(), HOST)


def test_a_secret_keeps_everything(clock: Clock) -> None:
    early, middle = begin(clock), coming(Clock())
    late = step(middle, clock(), NAMES, announced=PROPAGATION)

    for state in (early, middle, late):
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

"""Weighted max-min: what each container of a GPU is offered."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.compute.fair import Claim, level, offers

CLOSE = 1e-9


def hard(guarantee: float, want: float | None = None) -> Claim:
    return Claim(guarantee, guarantee if want is None else want, guarantee)


def eager(guarantee: float, ceiling: float = 1.0) -> Claim:
    return Claim(guarantee, ceiling, ceiling)


def idle(guarantee: float, ceiling: float = 1.0) -> Claim:
    return Claim(guarantee, 0.0, ceiling)


CASES = {
    "a hard limit is the guarantee, alone or not": ([hard(0.3)], [0.3]),
    "idle share goes to who may burst": ([hard(0.5, 0.0), eager(0.2)], [0.5, 1.0]),
    "and comes back whole": ([hard(0.5), eager(0.2)], [0.5, 0.5]),
    "what nobody was promised is idle": ([hard(0.3), eager(0.2)], [0.3, 0.7]),
    "up to the ceiling": ([hard(0.3, 0.0), eager(0.2, 0.6)], [0.3, 0.6]),
    "in proportion to promises": ([eager(0.1), eager(0.3)], [0.25, 0.75]),
    "what one cannot use the others get": (
        [eager(0.1, 0.2), eager(0.3), eager(0.1)],
        [0.2, 0.6, 0.2],
    ),
    "who wants a part leaves the rest": ([hard(0.5, 0.2), eager(0.2)], [0.5, 0.8]),
    "who wants nothing yet is offered its part": ([idle(0.25), eager(0.25)], [0.5, 1.0]),
    "two who want nothing yet are offered all": ([idle(0.25), idle(0.25)], [1.0, 1.0]),
    "promises beyond the GPU stay promises": ([eager(0.7), hard(0.6)], [0.7, 0.6]),
}


@pytest.mark.parametrize("case", CASES)
def test_offers_by_the_table(case: str) -> None:
    claims, expected = CASES[case]

    assert offers(claims) == pytest.approx(expected)


def test_what_strangers_take_is_not_offered() -> None:
    assert offers([eager(0.2), hard(0.3, 0.0)], capacity=0.6) == pytest.approx([0.6, 0.3])


def test_strangers_take_nothing_of_a_promise() -> None:
    assert offers([eager(0.2), hard(0.3)], capacity=0.1) == pytest.approx([0.2, 0.3])


@st.composite
def claim(draw: st.DrawFn, most: int = 100) -> Claim:
    guarantee = draw(st.integers(1, min(most, 99)))
    ceiling = draw(st.sampled_from([guarantee, draw(st.integers(guarantee, 100))]))
    want = draw(st.sampled_from([0, ceiling, draw(st.integers(0, ceiling))]))
    return Claim(guarantee / 100, want / 100, ceiling / 100)


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    """Of containers that fit on a GPU together."""
    found: list[Claim] = []
    left = 100
    while left > 0 and draw(st.booleans()):
        found.append(draw(claim(left)))
        left -= round(found[-1].guarantee * 100)
    return found


anything = st.lists(claim(), max_size=8)
shares = st.floats(0, 1)


@given(anything, shares)
def test_nobody_is_offered_less_than_its_promise_or_more_than_its_ceiling(
    found: list[Claim], capacity: float
) -> None:
    for one, offer in zip(found, offers(found, capacity), strict=True):
        assert one.guarantee - CLOSE <= offer <= max(one.ceiling, one.guarantee) + CLOSE


@given(claims())
def test_what_those_use_who_want_it_now_fits_on_the_gpu(found: list[Claim]) -> None:
    used = [min(one.want, offer) for one, offer in zip(found, offers(found), strict=True)]

    assert sum(used) <= 1 + CLOSE


@given(anything)
def test_nothing_is_left_idle_that_anybody_wants(found: list[Claim]) -> None:
    given_out = offers(found)
    used = [min(one.want, offer) for one, offer in zip(found, given_out, strict=True)]
    hungry = [
        one
        for one, offer in zip(found, given_out, strict=True)
        if one.ceiling > one.guarantee and one.want > offer + CLOSE
    ]

    assert not hungry or sum(used) >= 1 - CLOSE


@given(anything)
def test_nobody_has_more_per_promise_than_another_who_wants_more(found: list[Claim]) -> None:
    given_out = [
        (one, offer)
        for one, offer in zip(found, offers(found), strict=True)
        if one.want >= one.ceiling > one.guarantee
    ]
    for one, offer in given_out:
        for _other, theirs in given_out:
            if offer < one.ceiling - CLOSE:
                assert theirs / _other.guarantee <= offer / one.guarantee + 1e-6


@given(anything, st.data())
def test_who_begins_to_want_its_promise_takes_only_from_what_exceeds_promises(
    found: list[Claim], data: st.DataObject
) -> None:
    if not found:
        return
    place = data.draw(st.integers(0, len(found) - 1))
    begun = Claim(found[place].guarantee, found[place].ceiling, found[place].ceiling)
    changed = [*found[:place], begun, *found[place + 1 :]]

    before, after = offers(found), offers(changed)

    assert after[place] == pytest.approx(before[place])
    assert all(new <= old + CLOSE for new, old in zip(after, before, strict=True))


@given(anything, shares)
def test_the_order_of_containers_does_not_matter(found: list[Claim], capacity: float) -> None:
    forth = offers(found, capacity)
    back = offers(found[::-1], capacity)[::-1]

    assert forth == pytest.approx(back)


def test_a_gpu_of_nobody_has_room_for_all() -> None:
    assert level([]) == math.inf
    assert offers([]) == []

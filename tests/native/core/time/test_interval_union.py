"""Time that kernels of several streams shared is charged once (core/time/interval_union.h)."""

from hypothesis import given
from hypothesis import strategies as st

from vcuda_shim._shim import ffi, lib

SPANS = int(lib.INTERVAL_UNION_SIZE)


def charged(spans: list[tuple[int, int]]) -> list[int]:
    cover = ffi.new("struct interval_union *")
    return [int(lib.interval_union_add(cover, since, until)) for since, until in spans]


def test_a_launch_that_ran_alone_is_charged_all_of_its_time() -> None:
    assert charged([(0, 10), (10, 30), (50, 60)]) == [10, 20, 10]


def test_of_four_that_ran_side_by_side_all_together_are_charged_the_time_of_one() -> None:
    assert sum(charged([(0, 40), (0, 40), (1, 41), (2, 42)])) == 42


def test_a_long_launch_is_charged_what_short_ones_beside_it_were_not() -> None:
    assert charged([(10, 20), (30, 35), (0, 100)]) == [10, 5, 85]


def test_no_time_is_charged_for_no_time() -> None:
    assert charged([(5, 5), (7, 6), (0, 10)]) == [0, 0, 10]


spans = st.tuples(st.integers(-300, 300), st.integers(0, 60)).map(lambda one: (one[0], sum(one)))


@given(st.lists(spans, max_size=SPANS))
def test_in_any_order_all_are_charged_the_union_of_their_times(
    launches: list[tuple[int, int]],
) -> None:
    union = {moment for since, until in launches for moment in range(since, until)}

    assert sum(charged(launches)) == len(union)


@given(st.lists(spans, min_size=SPANS, max_size=4 * SPANS))
def test_what_is_forgotten_is_charged_again_rather_than_given_away(
    launches: list[tuple[int, int]],
) -> None:
    union = {moment for since, until in launches for moment in range(since, until)}

    assert sum(charged(launches)) >= len(union)


def test_the_oldest_times_are_forgotten_first() -> None:
    apart = [(20 * number, 20 * number + 10) for number in range(SPANS + 1)]

    assert charged([*apart, apart[-1], apart[1], apart[0]])[-3:] == [0, 0, 10]

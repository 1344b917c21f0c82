"""Learnt costs: right for constant kernels, not fooled by neighbours nor by varying lengths."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_shim._shim import ffi, lib

MICROSECOND = 1_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
HALF = 500_000


@pytest.fixture
def table() -> Any:
    return ffi.new("struct cost_table *")


def estimate(table: Any, key: int) -> int | None:
    cost: Any = ffi.new("uint64_t *")
    return int(cost[0]) if lib.cost_estimate(table, key, cost) else None


def test_an_unknown_kind_says_so_and_is_due_for_measurement(table: Any) -> None:
    cost: Any = ffi.new("uint64_t *")

    assert not lib.cost_estimate(table, 7, cost)
    assert cost[0] == lib.COST_UNKNOWN_NS
    assert lib.cost_due(table, 7, cost[0])


def test_one_measurement_makes_a_kind_known(table: Any) -> None:
    trusted = lib.cost_record(table, 7, SECOND, 2 * MILLISECOND, HALF)

    assert trusted == 2 * MILLISECOND
    assert estimate(table, 7) == 2 * MILLISECOND
    assert estimate(table, 8) is None


def test_each_launch_longer_than_a_slice_is_due(table: Any) -> None:
    length = lib.LIMITER_SLICE_NS
    due: dict[int, set[bool]] = {length - 1: set(), length: set()}
    for cost, found in due.items():
        for turn in range(20):
            lib.cost_record(table, cost, SECOND + turn * 123_457, cost, HALF)
            found.add(lib.cost_due(table, cost, length * 3 // 4))

    assert due == {length - 1: {False, True}, length: {True}}


def test_a_kind_is_due_again_after_some_work_of_it_which_nobody_can_foresee(table: Any) -> None:
    intervals = set()
    for turn in range(200):
        lib.cost_record(table, 7, SECOND + turn * 123_457, 100 * MICROSECOND, HALF)
        launches = 1
        while not lib.cost_due(table, 7, 100 * MICROSECOND):
            launches += 1
        intervals.add(launches)

    assert min(intervals) >= 10
    assert max(intervals) <= 30
    assert len(intervals) > 10


def test_a_neighbours_time_slices_do_not_raise_the_cost(table: Any) -> None:
    chance, now = random.Random(3), SECOND
    for _ in range(2000):
        now += 5 * MILLISECOND
        inflation = 1.0 if chance.random() < 0.05 else chance.uniform(1, 2)
        lib.cost_record(table, 7, now, int(2 * MILLISECOND * inflation), HALF)
        cost = estimate(table, 7)

    assert cost == pytest.approx(2 * MILLISECOND, rel=0.01)


def test_a_kind_that_gets_longer_is_believed_within_two_windows(table: Any) -> None:
    lib.cost_record(table, 7, SECOND, MILLISECOND, HALF)
    at_once = lib.cost_record(table, 7, SECOND + 1, 100 * MILLISECOND, HALF)
    for turn in range(110):
        lib.cost_record(table, 7, SECOND + turn * 100 * MILLISECOND, 100 * MILLISECOND, HALF)

    assert at_once == 50 * MILLISECOND
    assert estimate(table, 7) == 100 * MILLISECOND


def test_varying_lengths_do_not_go_for_the_price_of_the_shortest(table: Any) -> None:
    for turn in range(100):
        length = MILLISECOND if turn % 2 else 9 * MILLISECOND
        lib.cost_record(table, 7, SECOND + turn * MILLISECOND, length, HALF)

    assert estimate(table, 7) == pytest.approx(2.5 * MILLISECOND, rel=0.01)


def test_a_large_share_leaves_little_to_neighbours(table: Any) -> None:
    certain = lib.cost_certain(900_000, 1_000_000)
    lib.cost_record(table, 7, SECOND, MILLISECOND, certain)

    assert lib.cost_record(table, 7, SECOND, 10 * MILLISECOND, certain) == 9 * MILLISECOND


def test_with_nobody_else_on_the_gpu_varying_lengths_cost_their_mean(table: Any) -> None:
    for turn in range(100):
        length = MILLISECOND if turn % 2 else 9 * MILLISECOND
        alone = lib.cost_certain(300_000, 0)
        lib.cost_record(table, 7, SECOND + turn * MILLISECOND, length, alone)

    assert estimate(table, 7) == 5 * MILLISECOND


def test_what_siblings_stretched_teaches_the_least_and_nothing_of_the_mean(table: Any) -> None:
    first = lib.cost_record_stretched(table, 7, SECOND, 9 * MILLISECOND)
    known = estimate(table, 7)
    for length in (MILLISECOND, 3 * MILLISECOND):
        lib.cost_record(table, 7, SECOND, length, lib.LIMITER_MILLION)
    after = lib.cost_record_stretched(table, 7, SECOND, 9 * MILLISECOND)

    assert (first, known) == (9 * MILLISECOND, 9 * MILLISECOND)
    assert after == MILLISECOND
    assert estimate(table, 7) == 2 * MILLISECOND


def test_where_all_may_be_stretched_half_of_the_mean_without_the_longest_is_charged(
    table: Any,
) -> None:
    for length in (2000, 10, 10, 10, 10):
        lib.cost_record_stretched(table, 7, SECOND, length * MICROSECOND)
    for length in (2000, 30, 2000, 30, 2000):
        lib.cost_record_stretched(table, 8, SECOND, length * MICROSECOND)

    assert estimate(table, 7) == 10 * MICROSECOND
    assert estimate(table, 8) == (2000 + 30 + 2000 + 30) * MICROSECOND // 8


def test_a_kind_that_varies_is_measured_whenever_it_is_paid_for(table: Any) -> None:
    for turn in range(10):
        length = MILLISECOND if turn % 2 else 2 * MILLISECOND
        lib.cost_record(table, 7, SECOND + turn, length, lib.LIMITER_MILLION)
        lib.cost_record(table, 8, SECOND + turn, MILLISECOND, lib.LIMITER_MILLION)

    assert lib.cost_due(table, 7, MICROSECOND)
    assert not lib.cost_due(table, 8, MICROSECOND)


@pytest.mark.parametrize(
    ("rate", "others", "certain"),
    [
        (300_000, 1_000_000, 500_000),  # nothing known of the others
        (700_000, 1_000_000, 700_000),
        (300_000, 200_000, 600_000),
        (700_000, 500_000, 0),
        (300_000, 0, 1_000_000),
        (4_000_000, 4_000_000, 1_000_000),
    ],
)
def test_the_more_neighbours_had_the_less_of_a_measurement_is_certain(
    rate: int, others: int, certain: int
) -> None:
    assert lib.cost_certain(rate, others) == certain


def test_a_kind_unused_for_long_is_learnt_anew(table: Any) -> None:
    lib.cost_record(table, 7, SECOND, MILLISECOND, HALF)

    assert lib.cost_record(table, 7, 60 * SECOND, 3 * MILLISECOND, HALF) == 3 * MILLISECOND
    assert estimate(table, 7) == 3 * MILLISECOND


def test_what_is_presumed_holds_until_it_is_measured(table: Any) -> None:
    lib.cost_record(table, 8, SECOND, MILLISECOND, HALF)
    lib.cost_presume(table, 7, SECOND)
    lib.cost_presume(table, 8, SECOND)
    presumed = estimate(table, 7), estimate(table, 8)
    lib.cost_record(table, 7, SECOND, 3 * MILLISECOND, HALF)

    assert presumed == (lib.COST_UNKNOWN_NS, MILLISECOND)
    assert estimate(table, 7) == 3 * MILLISECOND


def test_a_full_table_makes_room_for_new_kinds(table: Any) -> None:
    for key in range(1, 5 * lib.COST_KINDS):
        lib.cost_record(table, key, SECOND + key, key, HALF)

        assert estimate(table, key) == key


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_every_launch_has_a_kind(function: int, blocks: int, threads: int) -> None:
    assert lib.cost_key(function, blocks, threads) != 0


def test_kinds_tell_shapes_apart_but_not_nearly_equal_large_grids() -> None:
    keys = {lib.cost_key(4096, blocks, 256) for blocks in range(1, 17)}

    assert len(keys) == 16
    assert lib.cost_key(4096, 10_000, 256) == lib.cost_key(4096, 10_010, 256)
    assert lib.cost_key(4096, 10_000, 256) != lib.cost_key(4096, 12_000, 256)
    assert lib.cost_key(4096, 2**31, 256) != lib.cost_key(4096, 0, 256)
    assert lib.cost_key(4096, 8, 256) != lib.cost_key(4096, 8, 128)


def test_a_kind_that_has_changed_is_unknown_until_it_is_measured_again(table: Any) -> None:
    for _ in range(3):
        lib.cost_record(table, 7, SECOND, MILLISECOND, HALF)

    lib.cost_forget(table, 7)

    assert estimate(table, 7) is None
    assert lib.cost_due(table, 7, 0)
    lib.cost_record(table, 7, SECOND, 30 * MILLISECOND, HALF)
    assert estimate(table, 7) == 30 * MILLISECOND


def test_to_forget_a_kind_leaves_those_that_lie_behind_it(table: Any) -> None:
    kinds = [1 + n * lib.COST_KINDS for n in range(3)]
    for kind in kinds:
        lib.cost_record(table, kind, SECOND, kind, HALF)

    for forgotten in (kinds[1], 99):
        lib.cost_forget(table, forgotten)

    assert [estimate(table, kind) for kind in kinds] == [kinds[0], None, kinds[2]]


def test_a_kind_that_takes_no_time_is_known_to(table: Any) -> None:
    lib.cost_record(table, 7, SECOND, 0, HALF)

    assert estimate(table, 7) == 1

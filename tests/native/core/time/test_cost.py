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
SLICE = lib.LIMITER_SLICE_MOST_NS


@pytest.fixture
def table() -> Any:
    return ffi.new("struct cost_table *")


def certain(
    measured: int, rate: int = 300_000, others: int = 1_000_000, neighbours: int = 0
) -> Any:
    """What is certain of a measurement; of the others nothing is known unless it is said."""
    terms: Any = ffi.new("struct limiter_terms *")
    terms.rate_ppm, terms.others_ppm, terms.neighbours = rate, others, neighbours
    return lib.cost_certain(measured, terms[0])


def record(table: Any, key: int, now: int, measured: int, **others: int) -> int:
    return int(lib.cost_record(table, key, now, measured, certain(measured, **others)))


def estimate(table: Any, key: int) -> int | None:
    cost: Any = ffi.new("uint64_t *")
    return int(cost[0]) if lib.cost_estimate(table, key, cost) else None


def test_an_unknown_kind_says_so_and_is_due_for_measurement(table: Any) -> None:
    cost: Any = ffi.new("uint64_t *")

    assert not lib.cost_estimate(table, 7, cost)
    assert cost[0] == lib.COST_UNKNOWN_NS
    assert lib.cost_due(table, 7, cost[0])


def test_one_measurement_makes_a_kind_known(table: Any) -> None:
    trusted = record(table, 7, SECOND, 2 * MILLISECOND)

    assert trusted == 2 * MILLISECOND
    assert estimate(table, 7) == 2 * MILLISECOND
    assert estimate(table, 8) is None


def test_each_launch_longer_than_a_slice_is_due(table: Any) -> None:
    length = lib.LIMITER_SLICE_NS
    due: dict[int, set[bool]] = {length - 1: set(), length: set()}
    for cost, found in due.items():
        for turn in range(20):
            record(table, cost, SECOND + turn * 123_457, cost)
            found.add(lib.cost_due(table, cost, length * 3 // 4))

    assert due == {length - 1: {False, True}, length: {True}}


def works(table: Any, length: int) -> int:
    """Launches of kind 7 until one is due."""
    launches = 1
    while not lib.cost_due(table, 7, length):
        launches += 1
    return launches


@pytest.mark.parametrize(
    ("shorter", "interval"), [(1.0, lib.COST_STEADY_NS), (0.75, lib.COST_INTERVAL_NS)]
)
def test_the_less_a_kind_varies_the_less_often_it_is_due(
    table: Any, shorter: float, interval: int
) -> None:
    """And after how much work exactly nobody can foresee."""
    length, intervals = 100 * MICROSECOND, set()
    for turn in range(200):
        varied = length if turn % 2 else int(length * shorter)
        record(table, 7, SECOND + turn * 123_457, varied, others=0)
        if turn >= 20:  # the first of a kind are all measured
            intervals.add(works(table, length))

    launches = interval // length
    assert min(intervals) >= launches // 2
    assert max(intervals) <= launches * 3 // 2
    assert len(intervals) > 10


def test_a_neighbours_time_slices_do_not_raise_the_cost(table: Any) -> None:
    chance, now = random.Random(3), SECOND
    for _ in range(2000):
        now += 5 * MILLISECOND
        inflation = 1.0 if chance.random() < 0.05 else chance.uniform(1, 2)
        record(table, 7, now, int(2 * MILLISECOND * inflation))
        cost = estimate(table, 7)

    assert cost == pytest.approx(2 * MILLISECOND, rel=0.01)


def test_a_kind_that_gets_longer_is_believed_within_two_windows(table: Any) -> None:
    record(table, 7, SECOND, MILLISECOND)
    at_once = record(table, 7, SECOND + 1, 100 * MILLISECOND)
    for turn in range(110):
        record(table, 7, SECOND + turn * 100 * MILLISECOND, 100 * MILLISECOND)

    assert at_once == 50 * MILLISECOND
    assert estimate(table, 7) == 100 * MILLISECOND


def test_varying_lengths_do_not_go_for_the_price_of_the_shortest(table: Any) -> None:
    for turn in range(100):
        length = MILLISECOND if turn % 2 else 9 * MILLISECOND
        record(table, 7, SECOND + turn * MILLISECOND, length)

    assert estimate(table, 7) == pytest.approx(2.5 * MILLISECOND, rel=0.01)


def test_a_large_share_leaves_little_to_neighbours(table: Any) -> None:
    record(table, 7, SECOND, MILLISECOND, rate=900_000)

    assert record(table, 7, SECOND, 10 * MILLISECOND, rate=900_000) == 9 * MILLISECOND


def test_with_nobody_else_on_the_gpu_varying_lengths_cost_their_mean(table: Any) -> None:
    for turn in range(100):
        length = MILLISECOND if turn % 2 else 9 * MILLISECOND
        record(table, 7, SECOND + turn * MILLISECOND, length, others=0)

    assert estimate(table, 7) == 5 * MILLISECOND


def test_what_siblings_stretched_costs_what_they_cannot_have_added(table: Any) -> None:
    first = lib.cost_record_stretched(table, 7, SECOND, 8 * MILLISECOND, 1)
    known = estimate(table, 7)
    for length in (MILLISECOND, 3 * MILLISECOND):
        record(table, 7, SECOND, length, others=0)
    short = lib.cost_record_stretched(table, 7, SECOND, 4 * MILLISECOND, 1)
    unchanged = estimate(table, 7)
    long = lib.cost_record_stretched(table, 7, SECOND, 12 * MILLISECOND, 1)

    assert (first, known) == (8 * MILLISECOND, 8 * MILLISECOND)
    assert (short, unchanged) == (MILLISECOND, 2 * MILLISECOND)
    assert long == 5 * MILLISECOND
    assert estimate(table, 7) == (1 + 3 + 2 + 5) * MILLISECOND // 4


def test_a_short_kind_that_a_sibling_s_slice_has_cut_in_two_stays_short(table: Any) -> None:
    for turn in range(20):
        record(table, 7, SECOND + turn, 50 * MICROSECOND, others=0)
        lib.cost_record_stretched(table, 7, SECOND + turn, 2050 * MICROSECOND, 1)
        lib.cost_record_stretched(table, 7, SECOND + turn, 8050 * MICROSECOND, 4)

    assert estimate(table, 7) == pytest.approx(50 * MICROSECOND, rel=0.1)


def test_where_all_may_be_stretched_half_of_the_mean_without_the_longest_is_charged(
    table: Any,
) -> None:
    for length in (2000, 10, 10, 10, 10):
        lib.cost_record_stretched(table, 7, SECOND, length * MICROSECOND, 1)
    for length in (2000, 30, 2000, 30, 2000):
        lib.cost_record_stretched(table, 8, SECOND, length * MICROSECOND, 1)

    assert estimate(table, 7) == 10 * MICROSECOND
    assert estimate(table, 8) == (2000 + 30 + 2000 + 30) * MICROSECOND // 8


def test_a_kind_that_varies_is_measured_whenever_it_is_paid_for(table: Any) -> None:
    for turn in range(10):
        length = MILLISECOND if turn % 2 else 2 * MILLISECOND
        record(table, 7, SECOND + turn, length, others=0)
        record(table, 8, SECOND + turn, MILLISECOND, others=0)

    assert lib.cost_due(table, 7, MICROSECOND)
    assert not lib.cost_due(table, 8, MICROSECOND)


@pytest.mark.parametrize(
    ("rate", "others", "part"),
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
    rate: int, others: int, part: int
) -> None:
    assert certain(SECOND, rate, others, neighbours=9).on_average_ns == 1000 * part


@pytest.mark.parametrize(
    ("measured", "neighbours", "least"),
    [(40, 1, 19), (40, 3, 8.5), (2, 1, 0), (1, 3, 0), (40, 0, 40)],
)
def test_of_a_long_launch_one_slice_in_turn_is_its_own(
    measured: int, neighbours: int, least: float
) -> None:
    found = certain(measured * MILLISECOND, others=900_000, neighbours=neighbours)

    assert found.each_ns == least * MILLISECOND


def test_who_the_others_are_says_nothing_where_nobody_knows_of_them() -> None:
    assert certain(40 * MILLISECOND, neighbours=1).each_ns == 20 * MILLISECOND


def stretched(chance: random.Random, length: int, cut: float) -> int:
    """A launch beside a neighbour that has all it can: the end of a slice cuts some in two."""
    return length + (SLICE if chance.random() < cut else 0)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("lengths", "within"),
    [((50, 50), 0.03), ((200, 200), 0.03), ((50, 1000), 0.08), ((200, 1000), 0.15)],
)
def test_beside_a_busy_neighbour_a_kind_costs_the_mean_of_its_lengths(
    table: Any, lengths: tuple[int, int], within: float, seed: int
) -> None:
    """The shortest of two lengths is no price for both, and no slice is paid for.

    A short one that is cut passes for a long one: what that adds is within the bounds.
    """
    chance, believed = random.Random(seed), 0
    for turn in range(400):
        length = lengths[turn % 2] * MICROSECOND
        measured = stretched(chance, length, cut=1.5 * length / SLICE)
        now = SECOND + turn * MILLISECOND
        believed += record(table, 7, now, measured, others=900_000, neighbours=1)

    mean = sum(lengths) * MICROSECOND / 2
    assert believed / 400 == pytest.approx(mean, rel=within)
    assert estimate(table, 7) == pytest.approx(mean, rel=within)


def test_other_streams_of_the_process_teach_nothing_of_lengths(table: Any) -> None:
    for turn in range(40):
        length = 50 * MICROSECOND if turn % 2 else MILLISECOND
        beside = certain(length, others=900_000, neighbours=1)
        beside.comparable = False
        lib.cost_record(table, 7, SECOND + turn * MILLISECOND, length, beside)

    assert estimate(table, 7) == 50 * MICROSECOND


def test_the_first_launches_of_a_kind_are_all_measured(table: Any) -> None:
    """Of a kind that varies the first may be short; the next ones are not to go for its price."""
    asked = []
    for turn in range(10):
        record(table, 7, SECOND + turn, 50 * MICROSECOND)
        asked.append((lib.cost_due(table, 7, 0), lib.cost_each(table, 7)))

    assert asked == [(True, True)] * 7 + [(False, False)] * 3


def test_of_a_kind_that_varies_each_is_paid_for_and_measured_unless_it_is_short(table: Any) -> None:
    for turn in range(20):
        for key, unit in ((7, 10 * MICROSECOND), (8, MICROSECOND)):
            record(table, key, SECOND + turn, unit * (1 if turn % 2 else 50), others=0)

    assert lib.cost_each(table, 7)
    assert lib.cost_due(table, 8, 0)
    assert not lib.cost_each(table, 8)


def test_a_kind_unused_for_long_is_learnt_anew(table: Any) -> None:
    record(table, 7, SECOND, MILLISECOND)

    assert record(table, 7, 60 * SECOND, 3 * MILLISECOND) == 3 * MILLISECOND
    assert estimate(table, 7) == 3 * MILLISECOND


def test_what_is_presumed_holds_until_it_is_measured(table: Any) -> None:
    record(table, 8, SECOND, MILLISECOND)
    lib.cost_presume(table, 7, SECOND)
    lib.cost_presume(table, 8, SECOND)
    presumed = estimate(table, 7), estimate(table, 8)
    record(table, 7, SECOND, 3 * MILLISECOND)

    assert presumed == (lib.COST_UNKNOWN_NS, MILLISECOND)
    assert estimate(table, 7) == 3 * MILLISECOND


def test_of_a_program_with_thousands_of_kinds_nearly_all_are_known(table: Any) -> None:
    chance = random.Random(1)
    keys = [chance.getrandbits(64) for _ in range(5000)]
    for turn, key in enumerate(keys):
        record(table, key, SECOND + turn * MILLISECOND, 100 * MICROSECOND)

    assert sum(estimate(table, key) is None for key in keys) <= len(keys) // 200


def test_once_many_kinds_are_known_an_unknown_one_costs_what_they_did_lately(table: Any) -> None:
    cost: Any = ffi.new("uint64_t *")
    for key in range(1, lib.COST_FAMILIAR_KINDS):
        record(table, key, SECOND, 10 * MICROSECOND)
    lib.cost_estimate(table, 2**40, cost)
    before = cost[0]
    record(table, lib.COST_FAMILIAR_KINDS, SECOND, SECOND)  # one far off tells little

    assert not lib.cost_estimate(table, 2**40, cost)
    assert before == lib.COST_UNKNOWN_NS
    assert cost[0] == pytest.approx(10 * MICROSECOND, rel=0.3)


def test_a_full_table_makes_room_for_new_kinds(table: Any) -> None:
    for key in range(1, 5 * lib.COST_KINDS):
        record(table, key, SECOND + key, key)

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
        record(table, 7, SECOND, MILLISECOND)

    lib.cost_forget(table, 7)

    assert estimate(table, 7) is None
    assert lib.cost_due(table, 7, 0)
    record(table, 7, SECOND, 30 * MILLISECOND)
    assert estimate(table, 7) == 30 * MILLISECOND


def test_to_forget_a_kind_leaves_those_that_lie_behind_it(table: Any) -> None:
    kinds = [1 + n * lib.COST_KINDS for n in range(3)]
    for kind in kinds:
        record(table, kind, SECOND, kind)

    for forgotten in (kinds[1], 99):
        lib.cost_forget(table, forgotten)

    assert [estimate(table, kind) for kind in kinds] == [kinds[0], None, kinds[2]]


def test_a_kind_that_takes_no_time_is_known_to(table: Any) -> None:
    record(table, 7, SECOND, 0)

    assert estimate(table, 7) == 1


def test_neighbours_that_took_nothing_explain_nothing() -> None:
    assert certain(3 * MILLISECOND, others=0, neighbours=1).each_ns == 3 * MILLISECOND

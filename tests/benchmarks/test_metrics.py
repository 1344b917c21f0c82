"""What a share over time is worth, in figures: examples worked out by hand, and properties."""

import pytest
from compute import metrics
from hypothesis import given
from hypothesis import strategies as st

TENTH = 0.1
busy_intervals = st.lists(st.floats(0, TENTH), min_size=1, max_size=60)


def test_a_share_is_the_part_of_the_time_in_percent() -> None:
    assert metrics.share([0.05, 0.1, 0.0, 0.05], TENTH) == pytest.approx(50)


def test_windows_slide_by_one_interval() -> None:
    assert metrics.shares([0.1, 0.1, 0.0, 0.0], TENTH, 0.2) == pytest.approx([100, 50, 0])


def test_a_run_shorter_than_a_window_is_one_window() -> None:
    assert metrics.shares([0.1, 0.0], TENTH, 5.0) == pytest.approx([50])


@pytest.mark.parametrize(
    ("unit", "width"), [(10e-6, 1.0), (20e-3, 1.0), (150e-3, 7.5), (500e-3, 25.0)]
)
def test_a_window_misses_by_one_point_at_most_by_where_it_begins(unit: float, width: float) -> None:
    assert metrics.window(unit) == pytest.approx(width)
    assert metrics.grain(unit, metrics.window(unit)) <= 1.0 + 1e-9


def test_errors_are_signed_and_in_points() -> None:
    found = metrics.errors([0.03, 0.04, 0.01], TENTH, TENTH, due=30)

    assert found == pytest.approx([0, 10, -20])
    assert metrics.mean_error(found) == pytest.approx(10)
    assert metrics.worst_error(found) == pytest.approx(-20)


@pytest.mark.parametrize(("got", "due", "percent"), [(15, 30, 50), (33, 30, 110), (0, 0, 100)])
def test_what_is_delivered_is_the_part_of_what_was_due(
    got: float, due: float, percent: float
) -> None:
    assert metrics.delivered(got, due) == pytest.approx(percent)


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        ([0, 1, -1, 2, 0], 0.0),
        ([9, 5, 1, 0, 0], 0.2),
        ([9, 0, 0, 9, 0, 0, 0], 0.4),
        ([0, 0, 0, 9, 9], 0.0),
        ([9, 9, 9, 9, 9], None),
        ([9, 9, 9, 0, 0], None),
    ],
)
def test_it_is_settled_when_it_first_stays_near_what_is_due(
    found: list[float], seconds: float | None
) -> None:
    assert metrics.settled(found, TENTH, within=2, held=0.3) == (
        None if seconds is None else pytest.approx(seconds)
    )


@pytest.mark.parametrize(
    ("ratios", "index"), [([100, 100, 100], 1), ([1, 0, 0, 0], 0.25), ([2, 1], 0.9), ([0, 0], 1)]
)
def test_fairness_is_jains_index(ratios: list[float], index: float) -> None:
    assert metrics.jain(ratios) == pytest.approx(index)


def test_the_richest_window_says_how_far_a_tenant_went_over() -> None:
    busy = [0.03] * 10 + [0.1] * 10 + [0.03] * 10

    assert metrics.most_beyond(busy, TENTH, 1.0, percent=30) == pytest.approx(0.7)
    assert metrics.most_beyond(busy, TENTH, 1.0, percent=120) == pytest.approx(-0.2)


@given(busy_intervals, st.floats(0.1, 8))
def test_no_window_is_above_the_best_interval_or_below_the_worst(
    busy: list[float], width: float
) -> None:
    found = metrics.shares(busy, TENTH, width)

    assert max(found) <= 100 * max(busy) / TENTH + 1e-9
    assert min(found) >= 100 * min(busy) / TENTH - 1e-9


@given(st.lists(st.floats(0, 200), min_size=1, max_size=10))
def test_fairness_lies_between_one_for_all_and_one_for_each(ratios: list[float]) -> None:
    assert 1 / len(ratios) - 1e-9 <= metrics.jain(ratios) <= 1 + 1e-9


@given(busy_intervals, st.floats(0, 100))
def test_the_worst_error_is_never_smaller_than_the_mean(busy: list[float], due: float) -> None:
    found = metrics.errors(busy, TENTH, 0.5, due)

    assert abs(metrics.worst_error(found)) >= metrics.mean_error(found) - 1e-9

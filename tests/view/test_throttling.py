"""Throttling as a rate of the last seconds, from sums since a container's start."""

from dataclasses import replace

import pytest

from gpumanager.view.node import Seen
from gpumanager.view.throttling import ThrottlingHistory
from tests.view.view_world import container, device, seen


def look(at: float, seconds: float | None) -> Seen:
    views = [] if seconds is None else [container("a/p", device(throttled_ns=int(seconds * 1e9)))]
    return replace(seen(*views), at=at)


def rate(*looks: tuple[float, float | None]) -> float | None:
    """After all of these looks: at which time, throttled for how long since the start."""
    history, last = ThrottlingHistory(), look(0, None)
    for at, seconds in looks:
        last = look(at, seconds)
        history = history.with_sample([last])
    (found,) = history.rated([last])
    assert found.node
    ((_, (_, row)),) = found.node.shares
    return row.throttled


@pytest.mark.parametrize(
    ("looks", "percent"),
    [
        ([(1, 100)], None),
        ([(1, 100), (2, 100)], 0),
        ([(1, 100), (2, 100.71)], 71),
        ([(1, 0), (2, 0), (3, 1), (4, 2)], 200 / 3),  # two looks between two samples
        ([(1, None), (2, 10), (3, 10.5)], 50),  # it came at the second look
        ([(1, 50), (2, 0.25)], 0),  # it began again
        ([(1, 0), (2, 4)], 100),  # four threads waited
        ([(n, max(0, n - 10)) for n in range(1, 31)], 100),  # what was long ago is forgotten
        ([(n, min(n, 10)) for n in range(1, 31)], 0),
    ],
)
def test_the_rate_is_of_the_last_seconds(
    looks: list[tuple[float, float | None]], percent: float | None
) -> None:
    assert rate(*looks) == (None if percent is None else pytest.approx(percent))


def test_a_look_that_brought_nothing_new_changes_nothing() -> None:
    history = ThrottlingHistory().with_sample([look(1, 0)])

    away = replace(look(1, 0), trouble="Connection refused")
    assert history.with_sample([away]) == history
    assert history.with_sample([look(1, 0)]) == history

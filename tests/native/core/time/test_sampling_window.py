"""Which launches are watched one and all while several streams have work."""

from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

SECOND = 1_000_000_000
LAUNCHES = int(lib.SAMPLING_LAUNCHES)
WORK = int(lib.SAMPLING_WORK_NS)
WHOLE = [
    lib.SAMPLING_FIRST,
    *[lib.SAMPLING_WITHIN] * (LAUNCHES - 1),
    lib.SAMPLING_AFTER,
    lib.SAMPLING_NONE,
]


@pytest.fixture
def window() -> Any:
    return ffi.new("struct sampling_window *")


def places(window: Any, count: int = LAUNCHES + 2) -> list[int]:
    return [int(lib.sampling_window_next(window)) for _ in range(count)]


def begun(window: Any) -> bool:
    return places(window, 1) == [lib.SAMPLING_FIRST]


def test_one_stream_is_not_several(window: Any) -> None:
    assert not any(
        lib.sampling_window_streams(window, 7, number * SECOND) for number in range(1, 9)
    )
    assert not begun(window)


def test_a_second_stream_begins_a_window(window: Any) -> None:
    lib.sampling_window_streams(window, 7, SECOND)

    assert lib.sampling_window_streams(window, 8, SECOND + 1)
    assert places(window) == WHOLE


def test_streams_that_go_on_begin_no_other(window: Any) -> None:
    for turn in range(2):
        lib.sampling_window_streams(window, 7 + turn, SECOND + turn)
    places(window)

    assert all(
        lib.sampling_window_streams(window, 7 + turn % 2, SECOND + turn) for turn in range(2, 9)
    )
    assert not begun(window)


def test_some_seconds_after_the_other_stream_has_left_there_is_one(window: Any) -> None:
    for turn in range(2):
        lib.sampling_window_streams(window, 7 + turn, SECOND + turn)

    memory = int(lib.SAMPLING_MEMORY_S) * SECOND
    assert lib.sampling_window_streams(window, 8, SECOND + memory)
    assert not lib.sampling_window_streams(window, 8, SECOND + 1 + memory)


def test_so_much_unwatched_work_begins_one(window: Any) -> None:
    lib.sampling_window_count(window, WORK - 1, 1)
    assert not begun(window)

    lib.sampling_window_count(window, 1, 1)
    assert places(window) == WHOLE


def test_the_longer_launches_are_the_rarer_it_is(window: Any) -> None:
    cost = 2 * WORK // (LAUNCHES * int(lib.SAMPLING_SPACING))
    lib.sampling_window_count(window, WORK, cost)
    assert not begun(window)

    lib.sampling_window_count(window, WORK, cost)
    assert begun(window)


def test_each_failure_ends_it_and_makes_it_half_as_frequent(window: Any) -> None:
    lib.sampling_window_count(window, WORK, 1)
    places(window, 3)
    lib.sampling_window_failed(window)
    assert places(window, 1) == [lib.SAMPLING_NONE]

    lib.sampling_window_count(window, WORK, 1)
    assert not begun(window)
    lib.sampling_window_count(window, WORK, 1)
    assert begun(window)


def test_failures_do_not_end_it_for_good(window: Any) -> None:
    for _ in range(1000):
        lib.sampling_window_failed(window)

    lib.sampling_window_count(window, WORK << int(lib.SAMPLING_FAILURES), 1)
    assert begun(window)

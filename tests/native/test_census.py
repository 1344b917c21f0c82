"""Which launches are watched one and all while several streams have work (core/time/census.h)."""

from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

SECOND = 1_000_000_000
LAUNCHES = int(lib.CENSUS_LAUNCHES)
WORK = int(lib.CENSUS_WORK_NS)
WHOLE = [lib.CENSUS_FIRST, *[lib.CENSUS_WITHIN] * (LAUNCHES - 1), lib.CENSUS_AFTER, lib.CENSUS_NONE]


@pytest.fixture
def census() -> Any:
    return ffi.new("struct census *")


def places(census: Any, count: int = LAUNCHES + 2) -> list[int]:
    return [int(lib.census_next(census)) for _ in range(count)]


def begun(census: Any) -> bool:
    return places(census, 1) == [lib.CENSUS_FIRST]


def test_one_stream_is_not_several(census: Any) -> None:
    assert not any(lib.census_streams(census, 7, number * SECOND) for number in range(1, 9))
    assert not begun(census)


def test_a_second_stream_begins_a_census(census: Any) -> None:
    lib.census_streams(census, 7, SECOND)

    assert lib.census_streams(census, 8, SECOND + 1)
    assert places(census) == WHOLE


def test_streams_that_go_on_begin_no_other(census: Any) -> None:
    for turn in range(2):
        lib.census_streams(census, 7 + turn, SECOND + turn)
    places(census)

    assert all(lib.census_streams(census, 7 + turn % 2, SECOND + turn) for turn in range(2, 9))
    assert not begun(census)


def test_some_seconds_after_the_other_stream_has_left_there_is_one(census: Any) -> None:
    for turn in range(2):
        lib.census_streams(census, 7 + turn, SECOND + turn)

    memory = int(lib.CENSUS_MEMORY_S) * SECOND
    assert lib.census_streams(census, 8, SECOND + memory)
    assert not lib.census_streams(census, 8, SECOND + 1 + memory)


def test_so_much_unwatched_work_begins_one(census: Any) -> None:
    lib.census_count(census, WORK - 1, 1)
    assert not begun(census)

    lib.census_count(census, 1, 1)
    assert places(census) == WHOLE


def test_the_longer_launches_are_the_rarer_it_is(census: Any) -> None:
    cost = 2 * WORK // (LAUNCHES * int(lib.CENSUS_SPACING))
    lib.census_count(census, WORK, cost)
    assert not begun(census)

    lib.census_count(census, WORK, cost)
    assert begun(census)


def test_each_failure_ends_it_and_makes_it_half_as_frequent(census: Any) -> None:
    lib.census_count(census, WORK, 1)
    places(census, 3)
    lib.census_failed(census)
    assert places(census, 1) == [lib.CENSUS_NONE]

    lib.census_count(census, WORK, 1)
    assert not begun(census)
    lib.census_count(census, WORK, 1)
    assert begun(census)


def test_failures_do_not_end_it_for_good(census: Any) -> None:
    for _ in range(1000):
        lib.census_failed(census)

    lib.census_count(census, WORK << int(lib.CENSUS_FAILURES), 1)
    assert begun(census)

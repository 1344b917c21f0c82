"""What a pair of timing events shows around nothing is found out and left out."""

from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

BUSY, IDLE = lib.EVENT_START_BUSY, lib.EVENT_START_IDLE


@pytest.fixture
def floor() -> Any:
    return ffi.new("struct event_floor *")


def enter(floor: Any, start: int, *pairs: int) -> None:
    for ns in pairs:
        lib.event_floor_enter(floor, start, ns)


def test_while_nothing_is_known_nothing_is_left_out(floor: Any) -> None:
    assert lib.event_floor_subtract(floor, BUSY, 13_000) == 13_000


def test_the_least_pair_is_left_out_by_how_the_stream_was(floor: Any) -> None:
    enter(floor, BUSY, 4_000, 3_000, 9_000, 3_000)
    enter(floor, IDLE, 12_000, 9_000, 19_000, 9_500)

    assert lib.event_floor_subtract(floor, BUSY, 13_000) == 10_000
    assert lib.event_floor_subtract(floor, IDLE, 19_000) == 10_000


def test_of_few_pairs_less_is_left_out(floor: Any) -> None:
    enter(floor, BUSY, 3_500)

    assert lib.event_floor_subtract(floor, BUSY, 13_000) == 10_000


def test_something_of_a_launch_is_always_left(floor: Any) -> None:
    enter(floor, BUSY, *([3_000] * lib.EVENT_FLOOR_FEW))

    assert lib.event_floor_subtract(floor, BUSY, 3_100) == lib.EVENT_FLOOR_LEAST_NS
    assert lib.event_floor_subtract(floor, BUSY, 100) == 100


def test_a_time_slice_between_two_events_is_no_floor(floor: Any) -> None:
    enter(floor, BUSY, 1_024_000)

    assert lib.event_floor_subtract(floor, BUSY, 1_030_000) == 1_030_000
    assert lib.event_floor_wants(floor, BUSY)


def test_after_some_pairs_no_more_are_wanted(floor: Any) -> None:
    enter(floor, BUSY, *([3_000] * lib.EVENT_FLOOR_SAMPLES))
    enter(floor, BUSY, 1_000)

    assert not lib.event_floor_wants(floor, BUSY)
    assert lib.event_floor_wants(floor, IDLE)
    assert lib.event_floor_subtract(floor, BUSY, 13_000) == 10_000

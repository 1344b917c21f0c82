"""Streams that refuse events: which they are, and what work in them is charged."""

from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

MILLISECOND, SECOND = 1_000_000, 1_000_000_000
CONTEXT, STREAM, DEVICE = 5, 70, 0


@pytest.fixture
def streams() -> Any:
    return ffi.new("struct unmeasured *")


def fail(streams: Any, times: int, now: int, stream: int = STREAM) -> bool:
    one: Any = ffi.new("struct unmeasured_stream *")
    one.context, one.stream, one.device = CONTEXT, stream, DEVICE
    return [bool(lib.unmeasured_fail(streams, one[0], now)) for _ in range(times)][-1]


def alone(streams: Any, now: int, stream: int = STREAM, context: int = CONTEXT) -> bool:
    return bool(lib.unmeasured_has(streams, context, stream, now))


def launch(streams: Any, now: int, paid: int, *, idle: bool = False) -> int:
    return int(lib.unmeasured_launch(streams, CONTEXT, STREAM, idle, paid, now))


def test_after_three_failures_a_stream_is_left_alone_and_no_other(streams: Any) -> None:
    assert not fail(streams, 2, SECOND)
    assert not alone(streams, SECOND)
    assert fail(streams, 1, SECOND)

    assert alone(streams, SECOND)
    assert not alone(streams, SECOND, stream=71)
    assert not alone(streams, SECOND, context=6)


def test_events_are_tried_again_later_and_at_once_where_they_worked(streams: Any) -> None:
    fail(streams, 3, SECOND)

    assert not alone(streams, SECOND + lib.UNMEASURED_AGAIN_NS)
    lib.unmeasured_succeed(streams, CONTEXT, STREAM)
    assert not alone(streams, SECOND)


def test_streams_of_a_context_that_ended_are_forgotten(streams: Any) -> None:
    fail(streams, 3, SECOND)

    lib.unmeasured_context_ended(streams, CONTEXT)

    assert not alone(streams, SECOND)


def test_a_full_table_forgets_the_stream_that_failed_longest_ago(streams: Any) -> None:
    for turn in range(lib.UNMEASURED_STREAMS + 1):
        fail(streams, 3, SECOND + turn, stream=STREAM + turn)

    now = SECOND + lib.UNMEASURED_STREAMS
    assert not alone(streams, now)
    assert alone(streams, now, stream=STREAM + 1)


def test_time_with_work_there_is_charged_less_what_was_paid(streams: Any) -> None:
    fail(streams, 3, SECOND)

    owed = [
        launch(streams, SECOND, MILLISECOND, idle=True),
        launch(streams, SECOND + 10 * MILLISECOND, MILLISECOND),
        lib.unmeasured_waited(streams, DEVICE, STREAM, SECOND + 15 * MILLISECOND),
        lib.unmeasured_waited(streams, DEVICE, lib.UNMEASURED_ANY, 2 * SECOND),
    ]

    assert owed == [0, 9 * MILLISECOND, 4 * MILLISECOND, 0]


def test_what_was_paid_in_advance_counts_until_it_has_run(streams: Any) -> None:
    fail(streams, 3, SECOND)
    launch(streams, SECOND, 20 * MILLISECOND, idle=True)

    owed = [launch(streams, SECOND + turn * 10 * MILLISECOND, 0) for turn in (1, 2, 3)]

    assert owed == [0, 0, 10 * MILLISECOND]


def test_idleness_that_nobody_saw_costs_a_second_at_most(streams: Any) -> None:
    fail(streams, 3, SECOND)
    launch(streams, SECOND, 0, idle=True)

    assert launch(streams, 9 * SECOND, 0, idle=True) == lib.UNMEASURED_MOST_NS

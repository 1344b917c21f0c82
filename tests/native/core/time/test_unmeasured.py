"""Work in streams that refuse events is charged by the time it is there, never for being held."""

from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

MILLISECOND = 1_000_000
CONTEXT, STREAM = 5, 9
BEGUN = 10**12
ANY = 0
"""Instead of a stream."""


@pytest.fixture
def unmeasured() -> Any:
    return ffi.new("struct unmeasured *")


def fail(unmeasured: Any, stream: int = STREAM, times: int = 3, now: int = BEGUN) -> list[bool]:
    which = {"context": CONTEXT, "stream": stream, "device": 0}
    return [lib.unmeasured_fail(unmeasured, which, now) for _ in range(times)]


def has(unmeasured: Any, stream: int = STREAM, now: int = BEGUN) -> bool:
    return bool(lib.unmeasured_has(unmeasured, CONTEXT, stream, now))


def see(unmeasured: Any, now: int, *, idle: bool = False, held: bool = False) -> int:
    look = {"idle": idle, "held": held, "now": now}
    return int(lib.unmeasured_see(unmeasured, CONTEXT, STREAM, look))


def launch(unmeasured: Any, now: int, paid: int = 0) -> None:
    lib.unmeasured_launch(unmeasured, CONTEXT, STREAM, paid, now)


def test_a_stream_is_left_alone_after_three_failures_in_a_row_and_for_a_second(
    unmeasured: Any,
) -> None:
    assert fail(unmeasured, times=2) == [False, False]
    lib.unmeasured_succeed(unmeasured, CONTEXT, STREAM)
    assert fail(unmeasured) == [False, False, True]

    assert [has(unmeasured), has(unmeasured, stream=STREAM + 1)] == [True, False]
    assert not has(unmeasured, now=BEGUN + lib.UNMEASURED_AGAIN_NS)


def test_a_context_that_ends_takes_its_streams_along(unmeasured: Any) -> None:
    fail(unmeasured)

    lib.unmeasured_context_ended(unmeasured, CONTEXT)

    assert not has(unmeasured)


def test_time_with_work_is_charged_less_what_was_paid(unmeasured: Any) -> None:
    fail(unmeasured)
    launch(unmeasured, BEGUN, paid=2 * MILLISECOND)

    owed = see(unmeasured, BEGUN + 5 * MILLISECOND)
    later = BEGUN + 8 * MILLISECOND
    waited = lib.unmeasured_waited(unmeasured, 0, ANY, later)

    assert [owed, waited] == [3 * MILLISECOND, 3 * MILLISECOND]
    assert see(unmeasured, later + MILLISECOND) == 0  # idle since


def test_being_held_back_is_not_charged_once_the_stream_is_seen_idle(unmeasured: Any) -> None:
    fail(unmeasured)
    launch(unmeasured, BEGUN)
    assert see(unmeasured, BEGUN + MILLISECOND) == MILLISECOND

    busy = see(unmeasured, BEGUN + 3 * MILLISECOND, held=True)
    done = see(unmeasured, BEGUN + 53 * MILLISECOND, held=True, idle=True)
    launch(unmeasured, BEGUN + 53 * MILLISECOND)

    assert [busy, done] == [2 * MILLISECOND, 0]
    assert see(unmeasured, BEGUN + 54 * MILLISECOND) == MILLISECOND


def test_more_streams_than_there_is_room_for_forget_the_one_that_failed_longest_ago(
    unmeasured: Any,
) -> None:
    for at in range(lib.UNMEASURED_STREAMS + 1):
        fail(unmeasured, stream=STREAM + at, now=BEGUN + at)

    now = BEGUN + lib.UNMEASURED_STREAMS
    assert not has(unmeasured, now=now)
    assert has(unmeasured, stream=STREAM + 1, now=now)

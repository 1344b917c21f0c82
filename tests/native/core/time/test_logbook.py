"""The logbook of long launches, as processes write it and the manager reads it."""

from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib

MS = 1_000_000
SLOT = 7


@pytest.fixture
def logbook() -> Any:
    return ffi.new("struct vcuda_logbook *")


def opened(logbook: Any, at: int = 100, paid: int = 5 * MS) -> Any:
    return lib.logbook_open(logbook, SLOT, at, paid)


def close(logbook: Any, logged: Any, cost: int = 20 * MS, charged: int = 10 * MS) -> None:
    end = ffi.new("struct logbook_end *", (200, 300, cost, charged))
    lib.logbook_close(logbook, logged, SLOT, end[0])


def entry(logbook: Any, ticket: int) -> tuple[int, ...]:
    words = logbook.of[ticket % lib.VCUDA_LOGGED]
    return (words.ticket, words.slot, words.begun, words.ended, words.cost_ns, words.charged_ns)


NONE = (0, 0)


def none() -> Any:
    return ffi.new("struct logged *", NONE)[0]


def test_a_launch_is_logged_when_it_goes_and_again_when_it_has_ended(logbook: Any) -> None:
    logged = opened(logbook)
    assert entry(logbook, 1) == (1, SLOT, 100, 0, 0, 5 * MS)
    assert logbook.charged_ns == 5 * MS

    close(logbook, logged)

    assert entry(logbook, 1) == (1, SLOT, 200, 300, 20 * MS, 10 * MS)
    assert logbook.charged_ns == 10 * MS


def test_a_launch_that_was_short_after_all_is_charged_as_short(logbook: Any) -> None:
    close(logbook, opened(logbook), cost=lib.LIMITER_SLICE_NS - 1)

    assert entry(logbook, 1)[5] == 0
    assert logbook.charged_ns == 0


def test_a_launch_that_was_there_for_longer_than_its_cost_and_a_slice_is_logged(
    logbook: Any,
) -> None:
    for longer in (0, 1):
        ended = 200 + MS + lib.LIMITER_SLICE_MOST_NS + longer
        end = ffi.new("struct logbook_end *", (200, ended, MS, MS))
        lib.logbook_close(logbook, none(), SLOT, end[0])

    assert logbook.last == 1
    assert entry(logbook, 1) == (1, SLOT, 200, ended, MS, MS)


def test_a_launch_that_nobody_expected_to_be_long_is_logged_at_its_end(logbook: Any) -> None:
    close(logbook, none(), cost=lib.LIMITER_SLICE_NS)

    assert entry(logbook, 1) == (1, SLOT, 200, 300, lib.LIMITER_SLICE_NS, 10 * MS)
    assert logbook.charged_ns == 10 * MS


def test_a_short_launch_is_not_logged(logbook: Any) -> None:
    close(logbook, none(), cost=lib.LIMITER_SLICE_NS - 1)

    assert (logbook.last, logbook.charged_ns) == (0, 0)


def test_of_a_launch_that_nobody_saw_end_it_is_known_that_it_is_not_waited_for(
    logbook: Any,
) -> None:
    logged = opened(logbook)

    lib.logbook_cancel(logbook, logged)

    assert entry(logbook, 1) == (1, SLOT, 100, 100, 0, 0)


def test_what_has_ended_is_not_cancelled(logbook: Any) -> None:
    logged = opened(logbook)
    close(logbook, logged)

    lib.logbook_cancel(logbook, logged)

    assert entry(logbook, 1)[3] == 300


def test_who_ends_late_leaves_the_entry_of_a_newer_launch_alone(logbook: Any) -> None:
    late = opened(logbook)
    for _ in range(lib.VCUDA_LOGGED):
        opened(logbook, at=400)
    newest = 1 + lib.VCUDA_LOGGED

    close(logbook, late)
    lib.logbook_cancel(logbook, late)

    assert entry(logbook, newest) == (newest, SLOT, 400, 0, 0, 5 * MS)
    assert logbook.charged_ns == (5 * lib.VCUDA_LOGGED + 10) * MS

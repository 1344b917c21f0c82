"""Where pools are expected to have room: what they grew by, gave out and got back; no driver."""

import errno
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpumanager.units import MIB
from tests.native.core.memory.pools_play import (
    CHUNK,
    ELSEWHERE,
    GAP_ANY,
    POOL,
    START,
    STREAM,
    THREAD,
    Pools,
    freed,
    given_out,
)
from vcuda_shim._shim import ffi, lib


def fits(pools: Pools, size: int, stream: int = STREAM) -> bool:
    return bool(lib.pools_rely(pools.table, POOL, size, stream))


def test_what_a_pool_grew_by_and_did_not_give_out_is_room_for_every_stream(pools: Pools) -> None:
    given_out(pools, START, 1000, CHUNK)

    assert fits(pools, CHUNK - 1024, ELSEWHERE)
    assert not fits(pools, CHUNK - 1023, ELSEWHERE)


def test_what_a_pool_keeps_is_relied_on_while_one_thread_uses_pools_and_never_after(
    pools: Pools,
) -> None:
    given_out(pools, START, 1000, CHUNK)
    lib.pools_seen(pools.table, THREAD)
    lib.pools_seen(pools.table, THREAD)
    alone = fits(pools, 1)

    lib.pools_seen(pools.table, THREAD + 1)

    assert alone
    assert not fits(pools, 1)
    lib.pools_seen(pools.table, THREAD)
    assert not fits(pools, 1)


def test_what_is_done_in_a_stream_is_room_for_others_if_it_was_freed_before(pools: Pools) -> None:
    given_out(pools, START, CHUNK, CHUNK)
    early = lib.pools_opened(pools.table)
    freed(pools, START, CHUNK)

    lib.pools_done(pools.table, POOL, STREAM, early)
    too_early = fits(pools, 1, ELSEWHERE)
    lib.pools_done(pools.table, POOL, ELSEWHERE, lib.pools_opened(pools.table))
    other_stream = fits(pools, 1, ELSEWHERE)
    lib.pools_done(pools.table, POOL, STREAM, lib.pools_opened(pools.table))
    done = fits(pools, CHUNK, ELSEWHERE)
    lib.pools_forget_room(pools.table, POOL)

    assert (too_early, other_stream, done) == (False, False, True)
    assert not fits(pools, 1, ELSEWHERE)


def test_what_was_freed_in_a_stream_that_is_gone_is_room_when_all_work_is_done(
    pools: Pools,
) -> None:
    given_out(pools, START, CHUNK, CHUNK)
    freed(pools, START, CHUNK)

    lib.pools_left(pools.table, STREAM)
    left = fits(pools, 1), fits(pools, 1, ELSEWHERE)
    lib.pools_waited(pools.table, GAP_ANY, lib.pools_now(pools.table))

    assert left == (False, False)
    assert fits(pools, CHUNK, ELSEWHERE)


def test_what_was_freed_is_room_for_its_stream_and_for_others_once_it_was_waited_for(
    pools: Pools,
) -> None:
    given_out(pools, START, CHUNK, CHUNK)
    early = lib.pools_now(pools.table)
    freed(pools, START, CHUNK)
    lib.pools_waited(pools.table, STREAM, early)
    at_once = fits(pools, CHUNK), fits(pools, 1, ELSEWHERE)
    too_early = fits(pools, 1, ELSEWHERE)
    moment = lib.pools_now(pools.table)
    lib.pools_waited(pools.table, ELSEWHERE, moment)
    other_stream = fits(pools, 1, ELSEWHERE)
    lib.pools_waited(pools.table, STREAM, lib.pools_now(pools.table))

    assert at_once == (True, False)
    assert (too_early, other_stream, fits(pools, CHUNK, ELSEWHERE)) == (False, False, True)


def test_memory_is_no_room_before_the_driver_has_freed_it(pools: Pools) -> None:
    given_out(pools, START, CHUNK, CHUNK)

    lib.pools_return(pools.table, POOL, START, CHUNK)
    before = fits(pools, 1)
    given_out(pools, START, MIB)  # to another thread, before this one could say that it is free
    lib.pools_returned(pools.table, POOL, START, CHUNK, STREAM)

    assert not before
    assert fits(pools, CHUNK - MIB)
    assert not fits(pools, CHUNK - MIB + 1)


def test_memory_the_driver_would_not_free_is_no_room(pools: Pools) -> None:
    given_out(pools, START, CHUNK, CHUNK)

    lib.pools_return(pools.table, POOL, START, CHUNK)
    lib.pools_kept(pools.table, POOL, START, CHUNK)

    assert not fits(pools, 1)


def test_neighbours_are_one_room_inside_of_what_the_pool_grew_by_at_once(pools: Pools) -> None:
    for start in (START, START + CHUNK):
        given_out(pools, start, CHUNK, CHUNK)
    for address in range(START, START + 2 * CHUNK, CHUNK // 2):
        freed(pools, address, CHUNK // 2)

    assert fits(pools, CHUNK)
    assert not fits(pools, CHUNK + 1)


def test_when_a_pool_gave_something_back_only_room_beside_what_is_in_use_remains(
    pools: Pools,
) -> None:
    pools.enter(3 * CHUNK)
    given_out(pools, START, MIB, CHUNK)
    given_out(pools, START + CHUNK, CHUNK, CHUNK)
    freed(pools, START + CHUNK, CHUNK)
    given_out(pools, START + 5 * CHUNK, CHUNK)
    freed(pools, START + 5 * CHUNK, CHUNK)
    before = fits(pools, CHUNK)
    lib.pools_end_turn(pools.table, POOL)

    pools.enter(2 * CHUNK)

    assert before
    assert fits(pools, CHUNK - MIB)
    assert not fits(pools, CHUNK - MIB + 1)


def test_while_somebody_waits_only_room_beside_what_is_in_use_is_relied_upon(pools: Pools) -> None:
    given_out(pools, START, MIB, CHUNK)
    given_out(pools, START + CHUNK, CHUNK, CHUNK)
    freed(pools, START + CHUNK, CHUNK)
    alone = fits(pools, CHUNK)

    moment = lib.pools_now(pools.table)
    meanwhile = fits(pools, CHUNK), fits(pools, CHUNK - MIB)
    lib.pools_waited(pools.table, GAP_ANY, moment)

    assert (alone, meanwhile, fits(pools, CHUNK)) == (True, (False, True), True)


def test_while_a_pool_is_relied_upon_nobody_else_lowers_its_charge(pools: Pools) -> None:
    pools.enter(2 * CHUNK)
    given_out(pools, START, MIB, 2 * CHUNK)
    assert pools.take_turn()
    assert fits(pools, MIB)
    asked = pools.found().version

    pools.enter(CHUNK)
    meanwhile = pools.charged()
    growth = ffi.new("struct pool_growth *", {"bytes": MIB})
    late = pools.enter(2 * CHUNK, growth, version=asked)
    pools.enter(CHUNK, growth)

    assert (meanwhile, late) == (2 * CHUNK, -errno.EAGAIN)
    assert pools.charged() == CHUNK


ARENA = 64
PIECES = st.lists(
    st.tuples(st.sampled_from(["take", "free"]), st.integers(0, ARENA - 1), st.integers(1, 16)),
    max_size=120,
)


@given(PIECES)
def test_room_that_is_expected_is_there_through_any_history(history: list[tuple[Any, ...]]) -> None:
    """Against a plain map of the units of one chunk; what is there may be overlooked when the
    table is full, but here it never is."""
    used = [True] * ARENA
    unit = CHUNK // ARENA
    with Pools() as pools:
        given_out(pools, START, CHUNK, CHUNK)
        for verb, at, length in history:
            span = range(at, min(at + length, ARENA))
            if verb == "take" and not any(used[i] for i in span):
                given_out(pools, START + at * unit, len(span) * unit)
            elif verb == "free" and all(used[i] for i in span):
                freed(pools, START + at * unit, len(span) * unit)
            else:
                continue
            for i in span:
                used[i] = verb == "take"
        longest = max(len(run) for run in "".join("u" if u else "f" for u in used).split("u"))

        assert fits(pools, longest * unit) == (longest > 0)
        assert not fits(pools, longest * unit + 1)


def test_more_gaps_than_the_table_holds_are_not_expected_and_harm_nothing() -> None:
    free_list: Any = ffi.new("struct free_list *")
    lib.free_list_grown(free_list, START, 2 * lib.FREE_LIST_SIZE * MIB)
    lib.free_list_give(free_list, START, 2 * lib.FREE_LIST_SIZE * MIB)
    for piece in range(0, 2 * lib.FREE_LIST_SIZE, 2):
        lib.free_list_close(free_list, START + piece * MIB, MIB)
        lib.free_list_open(free_list, START + piece * MIB, MIB, STREAM, piece)
    full = free_list.count
    lib.free_list_close(free_list, START + MIB, MIB)

    assert full == lib.FREE_LIST_SIZE
    assert free_list.count == lib.FREE_LIST_SIZE
    assert lib.free_list_fit(free_list, MIB, STREAM, False)
    assert not lib.free_list_fit(free_list, MIB + 1, STREAM, False)

"""What pools are charged for, and what they are expected to have room for, without a driver."""

import errno
from collections.abc import Iterator
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.units import MIB
from vcuda_shim._shim import ffi, lib

POOL, OTHER = 0x1000, 0x2000
THREAD = 7
LIMIT = 1024 * MIB
CHUNK = 32 * MIB
START = 0x7F0000000000
GAP_ANY, STREAM, ELSEWHERE = 0, 0x77, 0x88


class Pools:
    """A table with one pool on device 0, and books of their own in plain memory."""

    def __init__(self) -> None:
        self.table: Any = ffi.new("struct pools *")
        self.page: Any = ffi.new("struct vcuda_books *", {"slot_limit": 1})
        self.books: Any = ffi.new("struct books *", {"page": self.page, "fd": -1, "slot": 0})
        assert lib.pools_add(self.table, POOL, 0, lib.POOL_MADE) == 0

    def charged(self) -> int:
        return int(lib.books_total(self.books, 0))

    def found(self, handle: int = POOL) -> Any:
        pool: Any = ffi.new("struct pool *")
        return pool if lib.pools_find(self.table, handle, pool) == 0 else None

    def enter(
        self,
        held: int,
        mine: Any = ffi.NULL,
        *,
        version: int | None = None,
        surely: bool = False,
    ) -> int:
        before: Any = ffi.new("struct pool *")
        assert lib.pools_use(self.table, POOL, before) == 0
        asked = before.version if version is None else version
        answer = {"held": held, "version": asked}
        return int(lib.pools_enter(self.table, self.books, POOL, answer, LIMIT, mine, surely))

    def reserve(self, size: int) -> Any:
        """What a thread does before it asks the driver."""
        assert self.take_turn()
        reserved = lib.pool_growth(self.found(), size)
        assert lib.books_reserve(self.books, 0, reserved, LIMIT) == 0
        return ffi.new("struct pool_growth *", {"bytes": size, "reserved": reserved})

    def take_turn(self, *, anyway: bool = False) -> bool:
        found = ffi.new("struct pool *")
        return bool(lib.pools_take_turn(self.table, POOL, THREAD, anyway, found))

    def finish(self, growth: Any) -> None:
        lib.books_release(self.books, 0, growth.reserved)
        lib.pools_end_turn(self.table, POOL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        lib.pools_clear(self.table)


@pytest.fixture
def pools() -> Iterator[Pools]:
    with Pools() as made:
        yield made


def test_growth_is_paid_from_what_was_reserved_and_the_rest_given_back(pools: Pools) -> None:
    growth = pools.reserve(40 * MIB)
    reserved = pools.charged()

    pools.enter(CHUNK, growth)
    pools.finish(growth)

    assert reserved == 2 * CHUNK
    assert (growth.grown, growth.over, pools.charged()) == (CHUNK, False, CHUNK)


def test_growth_beyond_the_limit_is_entered_all_the_same_and_told(pools: Pools) -> None:
    growth = pools.reserve(1)

    pools.enter(LIMIT + 1, growth)
    pools.finish(growth)

    assert growth.over
    assert pools.charged() == LIMIT + 1


def test_growth_beyond_what_was_reserved_but_within_the_limit_is_not_over(pools: Pools) -> None:
    growth = pools.reserve(1)

    pools.enter(3 * CHUNK, growth)
    pools.finish(growth)

    assert (growth.over, pools.charged()) == (False, 3 * CHUNK)


def test_an_answer_asked_for_before_another_was_entered_is_too_late(pools: Pools) -> None:
    early = pools.found().version
    assert pools.enter(2 * CHUNK) == 0

    assert pools.enter(CHUNK, version=early) == -errno.EAGAIN

    assert pools.charged() == 2 * CHUNK


def test_who_had_a_turn_and_always_comes_too_late_is_charged_for_all_it_reserved(
    pools: Pools,
) -> None:
    growth = pools.reserve(1)
    pools.enter(0)

    answer = pools.enter(0, growth, version=0, surely=True)
    pools.finish(growth)

    assert (answer, pools.charged()) == (0, CHUNK)
    pools.enter(0)
    assert pools.charged() == 0


def test_a_pool_ends_when_it_is_retired_empty_and_nobody_asks_about_it(pools: Pools) -> None:
    found: Any = ffi.new("struct pool *")
    ends = []
    for step in (
        lambda: None,
        lambda: pools.enter(CHUNK),
        lambda: lib.pools_retire(pools.table, POOL),
        lambda: given_out(pools, START, 1),
        lambda: pools.enter(0),
        lambda: lib.pools_use(pools.table, POOL, found),
        lambda: freed(pools, START, 1),
        lambda: lib.pools_leave(pools.table, POOL),
    ):
        step()
        ends.append(bool(lib.pools_end(pools.table, POOL)))

    assert ends == [False] * 7 + [True]
    assert pools.found() is None


def test_while_one_has_the_turn_others_enter_only_what_went_back(pools: Pools) -> None:
    pools.enter(4 * CHUNK)
    growth = pools.reserve(1)

    pools.enter(5 * CHUNK)
    grown_for_another = pools.charged()
    pools.enter(2 * CHUNK)

    assert grown_for_another == 5 * CHUNK  # what is held and what is reserved
    assert pools.charged() == 3 * CHUNK
    pools.finish(growth)


def test_only_one_has_the_turn_unless_it_is_taken_by_force(pools: Pools) -> None:
    assert pools.take_turn()
    assert not pools.take_turn()
    assert pools.take_turn(anyway=True)

    lib.pools_end_turn(pools.table, POOL)

    assert pools.take_turn()


@pytest.mark.parametrize(
    ("grown", "expected"),
    [([CHUNK], CHUNK), ([2 * MIB], 2 * MIB), ([6 * MIB, 4 * MIB], 2 * MIB), ([MIB], 2 * MIB)],
)
def test_how_a_pool_grows_is_learnt_from_how_it_grew(
    pools: Pools, grown: list[int], expected: int
) -> None:
    held = 0
    for size in grown:
        held += size
        growth = pools.reserve(1)
        growth.reserved += lib.books_reserve(pools.books, 0, CHUNK, LIMIT) + CHUNK
        pools.enter(held, growth)
        pools.finish(growth)

    assert lib.pool_growth(pools.found(), 1) == expected


def test_a_pool_that_grew_by_more_than_expected_is_expected_to_do_so_again(pools: Pools) -> None:
    for held in (64 * MIB, 66 * MIB):
        growth = pools.reserve(1)
        pools.enter(held, growth)
        pools.finish(growth)

    assert lib.pool_growth(pools.found(), 1) == 64 * MIB


def test_no_growth_is_small_enough_for_the_largest_request(pools: Pools) -> None:
    assert lib.pool_growth(pools.found(), 2**64 - 1) == 2**64 - 1


def test_a_pool_that_is_known_stays_as_it_is_and_its_place_is_used_again(pools: Pools) -> None:
    pools.enter(CHUNK)

    assert lib.pools_add(pools.table, POOL, 3, lib.POOL_STANDARD) == 0
    assert (pools.found().device, pools.found().charged) == (0, CHUNK)

    lib.pools_remove(pools.table, POOL)
    assert pools.found() is None
    assert [lib.pools_add(pools.table, OTHER + n, 1, lib.POOL_MADE) for n in range(20)] == [0] * 20
    assert pools.found(OTHER + 19).device == 1
    assert pools.found(OTHER).charged == 0


def test_only_a_pool_nobody_saw_made_is_forgotten_when_the_driver_knows_it_not(
    pools: Pools,
) -> None:
    lib.pools_add(pools.table, OTHER, 0, lib.POOL_STRANGE)

    for handle in (POOL, OTHER):
        lib.pools_forget_stranger(pools.table, handle)

    assert pools.found() is not None
    assert pools.found(OTHER) is None


def given_out(pools: Pools, address: int, size: int, grown: int = 0) -> None:
    growth = ffi.new("struct pool_growth *", {"bytes": size, "grown": grown})
    lib.pools_given(pools.table, POOL, address, growth)


def freed(pools: Pools, address: int, size: int, stream: int = STREAM) -> None:
    lib.pools_return(pools.table, POOL, address, size)
    lib.pools_returned(pools.table, POOL, address, size, stream)


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
    gaps: Any = ffi.new("struct gaps *")
    lib.gaps_grown(gaps, START, 2 * lib.GAPS * MIB)
    lib.gaps_give(gaps, START, 2 * lib.GAPS * MIB)
    for piece in range(0, 2 * lib.GAPS, 2):
        lib.gaps_close(gaps, START + piece * MIB, MIB)
        lib.gaps_open(gaps, START + piece * MIB, MIB, STREAM, piece)
    full = gaps.count
    lib.gaps_close(gaps, START + MIB, MIB)

    assert full == lib.GAPS
    assert gaps.count == lib.GAPS
    assert lib.gaps_fit(gaps, MIB, STREAM, False)
    assert not lib.gaps_fit(gaps, MIB + 1, STREAM, False)

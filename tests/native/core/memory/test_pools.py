"""What pools are charged for, and whose turn it is to let one grow, without a driver."""

import errno
from typing import Any

from gpumanager.units import MIB
from tests.native.core.memory.pools_play import (
    CHUNK,
    LIMIT,
    OTHER,
    POOL,
    START,
    Pools,
    freed,
    given_out,
)
from vcuda_shim._shim import ffi, lib


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


def test_a_pool_grows_by_whole_pieces() -> None:
    assert [lib.pool_growth(size) for size in (1, CHUNK, CHUNK + 1)] == [CHUNK, CHUNK, 2 * CHUNK]


def test_no_growth_is_small_enough_for_the_largest_request() -> None:
    assert lib.pool_growth(2**64 - 1) == 2**64 - 1


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


def test_what_a_pool_of_managed_memory_holds_is_told_as_managed(pools: Pools) -> None:
    pools.books.devices = 1
    lib.pools_manage(pools.table, POOL)
    told = []

    for held in (3 * CHUNK, CHUNK, 0):
        pools.enter(held)
        told.append(pools.managed())

    assert told == [3 * CHUNK, CHUNK, 0]
    assert pools.charged() == 0


def test_a_pool_of_one_device_holds_no_managed_memory(pools: Pools) -> None:
    pools.books.devices = 1

    pools.enter(3 * CHUNK)

    assert (pools.charged(), pools.managed()) == (3 * CHUNK, 0)

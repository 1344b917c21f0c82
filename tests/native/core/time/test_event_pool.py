"""Events are recorded again in the context that they belong to, and in no other."""

from typing import Any

import pytest

from vcuda_shim._shim import ffi, lib


@pytest.fixture
def pools() -> Any:
    return ffi.new("struct event_pools *")


def give(pools: Any, context: int, event: int) -> bool:
    return bool(lib.event_pools_give(pools, context, ffi.cast("void *", event)))


def take(pools: Any, context: int) -> int:
    return int(ffi.cast("uintptr_t", lib.event_pools_take(pools, context)))


def test_an_event_is_taken_once_by_its_context(pools: Any) -> None:
    assert give(pools, 5, 100)

    assert take(pools, 6) == 0
    assert [take(pools, 5), take(pools, 5)] == [100, 0]


def test_events_of_a_context_that_has_ended_are_forgotten(pools: Any) -> None:
    give(pools, 5, 100)
    give(pools, 6, 200)

    lib.event_pools_context_ended(pools, 5)

    assert [take(pools, 5), take(pools, 6)] == [0, 200]


def test_a_pool_is_bounded_and_so_are_pools(pools: Any) -> None:
    kept = [give(pools, 1, event) for event in range(1, lib.EVENT_POOL_SIZE + 2)]
    contexts = [give(pools, context, 7) for context in range(2, lib.EVENT_POOL_CONTEXTS + 2)]
    lib.event_pools_context_ended(pools, 1)

    assert kept == [True] * lib.EVENT_POOL_SIZE + [False]
    assert contexts == [True] * (lib.EVENT_POOL_CONTEXTS - 1) + [False]
    assert give(pools, 99, 8)

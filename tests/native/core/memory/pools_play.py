"""A table of pools and its books in plain memory, without a driver: for tests to play on."""

from typing import Any, Self

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

    def managed(self) -> int:
        """Of what is charged, managed memory."""
        return int(self.page.used[lib.VCUDA_BESIDE][0])

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
        reserved = lib.pool_growth(size)
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


def given_out(pools: Pools, address: int, size: int, grown: int = 0) -> None:
    growth = ffi.new("struct pool_growth *", {"bytes": size, "grown": grown})
    lib.pools_given(pools.table, POOL, address, growth)


def freed(pools: Pools, address: int, size: int, stream: int = STREAM) -> None:
    lib.pools_return(pools.table, POOL, address, size)
    lib.pools_returned(pools.table, POOL, address, size, stream)

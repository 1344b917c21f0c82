"""The client's side of a pool test: stream-ordered allocation by plain ctypes.

Runs in a program of its own, on the simulated driver or on the shim before it. A result of the
driver is an int; what else a call yields comes after it.
"""

import ctypes
import random
from typing import Any

from tests.native.programs.shim_client import OUT_OF_MEMORY, cuda

MIB = 1 << 20
THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8
PINNED, MANAGED = 1, 2
ON_DEVICE, ON_HOST = 1, 3  # of the host: a NUMA node, which drivers of CUDA 12 know too


class PoolProps(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("place", ctypes.c_int),
        ("ordinal", ctypes.c_int),
        ("security", ctypes.c_void_p),
        ("largest", ctypes.c_size_t),
        ("rest", ctypes.c_ubyte * 56),
    )


class Pools:
    """A context on device 0, and what can be done with pools there."""

    def __init__(self, *, device: int = 0) -> None:
        self.driver, self.device = cuda(), device
        self.context = ctypes.c_void_p()
        assert self.driver.cuInit(0) == 0
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), device) == 0
        assert self.driver.cuCtxSetCurrent(self.context) == 0

    def current(self) -> ctypes.c_void_p:
        pool = ctypes.c_void_p()
        assert self.driver.cuDeviceGetMemPool(ctypes.byref(pool), self.device) == 0
        return pool

    def default(self) -> ctypes.c_void_p:
        pool = ctypes.c_void_p()
        assert self.driver.cuDeviceGetDefaultMemPool(ctypes.byref(pool), self.device) == 0
        return pool

    def make(
        self,
        *,
        kind: int = PINNED,
        place: int = ON_DEVICE,
        ordinal: int = 0,
        largest: int = 0,
        handles: int = 0,
    ) -> tuple[int, ctypes.c_void_p]:
        pool = ctypes.c_void_p()
        props = PoolProps(kind, handles, place, ordinal, None, largest)
        return self.driver.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(props)), pool

    def made(self, **wanted: int) -> ctypes.c_void_p:
        result, pool = self.make(**wanted)
        assert result == 0, result
        return pool

    def of(
        self, place: int, ordinal: int = 0, kind: int = PINNED, function: str = "cuMemGetMemPool"
    ) -> tuple[int, int | None]:
        """The pool of a place and kind of memory: the current one, or what the function gives."""
        pool, location = ctypes.c_void_p(), (ctypes.c_int * 2)(place, ordinal)
        return getattr(self.driver, function)(ctypes.byref(pool), location, kind), pool.value

    def stream(self) -> ctypes.c_void_p:
        stream = ctypes.c_void_p()
        assert self.driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
        return stream

    def alloc(
        self, size: int, stream: Any = None, pool: Any = None, suffix: str = ""
    ) -> tuple[int, int]:
        address, bytes_ = ctypes.c_uint64(), ctypes.c_size_t(size)
        if pool is None:
            call = getattr(self.driver, "cuMemAllocAsync" + suffix)
            return call(ctypes.byref(address), bytes_, stream), address.value
        call = getattr(self.driver, "cuMemAllocFromPoolAsync" + suffix)
        return call(ctypes.byref(address), bytes_, pool, stream), address.value

    def had(self, size: int, stream: Any = None, pool: Any = None) -> int:
        """An address that must be had."""
        result, address = self.alloc(size, stream, pool)
        assert result == 0, result
        return address

    def free(self, address: int, stream: Any = None, suffix: str = "") -> int:
        call = getattr(self.driver, "cuMemFreeAsync" + suffix)
        return int(call(ctypes.c_uint64(address), stream))

    def free_now(self, address: int) -> int:
        return int(self.driver.cuMemFree_v2(ctypes.c_uint64(address)))

    def get(self, pool: Any, attribute: int) -> int:
        value = ctypes.c_uint64()
        assert self.driver.cuMemPoolGetAttribute(pool, attribute, ctypes.byref(value)) == 0
        return value.value

    def put(self, pool: Any, attribute: int, value: int) -> int:
        word = ctypes.c_uint64(value)
        return int(self.driver.cuMemPoolSetAttribute(pool, attribute, ctypes.byref(word)))

    def held(self, pool: Any) -> list[int]:
        """Bytes reserved and used."""
        return [self.get(pool, RESERVED), self.get(pool, USED)]

    def trim(self, pool: Any, keep: int = 0) -> int:
        return int(self.driver.cuMemPoolTrimTo(pool, ctypes.c_size_t(keep)))

    def destroy(self, pool: Any) -> int:
        return int(self.driver.cuMemPoolDestroy(pool))

    def sync(self, stream: Any = None) -> int:
        return int(self.driver.cuStreamSynchronize(stream))

    def spin(self, stream: Any, nanoseconds: int) -> None:
        """A kernel of so long."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.driver.cuModuleLoadData(ctypes.byref(module), b"any image") == 0
        assert self.driver.cuModuleGetFunction(ctypes.byref(function), module, b"spin") == 0
        length = ctypes.c_uint64(nanoseconds)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length))
        shape = [1] * 6
        assert self.driver.cuLaunchKernel(function, *shape, 0, stream, parameters, None) == 0

    def plain(self, size: int) -> tuple[int, int]:
        address = ctypes.c_uint64()
        result = self.driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        return result, address.value

    def left(self) -> int:
        """Free bytes, as cuMemGetInfo says."""
        left, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.driver.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
        return left.value


class LimitedPools(Pools):
    """The same behind the shim, with the driver's own account to compare with."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit, self.real = limit, ctypes.CDLL("libvcuda-real.so.1")

    def books(self) -> int:
        """Bytes held, as the container sees it."""
        return self.limit - self.left()

    def truth(self) -> int:
        """Bytes held, as the driver knows it."""
        left, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.real.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
        return total.value - left.value

    def both(self) -> list[int]:
        return [self.books(), self.truth()]

    def fill(self, leave: int) -> None:
        """Take all but so much."""
        assert self.plain(self.left() - leave)[0] == 0


class History:
    """Random use of pools, by one thread."""

    def __init__(self, pools: LimitedPools, seed: int) -> None:
        self.pools, self.random = pools, random.Random(seed)
        self.streams = [None, pools.stream(), pools.stream()]
        self.made: list[Any] = [None, pools.made()]
        self.held: list[int] = []
        self.results: set[int] = set()
        self.refused = 0
        self.had_room = 0
        """Requests refused although there was room for them."""

    def size(self) -> int:
        return 1 + self.random.getrandbits(self.random.randrange(8, 29))

    def take(self) -> None:
        pooled, size = self.random.random() < 0.8, self.size()
        call, unit = (self.pools.alloc, 32 * MIB) if pooled else (self.plain, 1)
        result, address = call(
            size, self.random.choice(self.streams), self.random.choice(self.made)
        )
        self.results.add(result)
        if result == OUT_OF_MEMORY:
            room = self.pools.limit - self.pools.truth()
            self.refused += 1
            self.had_room += -(-size // unit) * unit <= room
        if result == 0:
            self.held.append(address)

    def plain(self, size: int, _stream: Any, _pool: Any) -> tuple[int, int]:
        return self.pools.plain(size)

    def give(self) -> None:
        if not self.held:
            return
        address = self.held.pop(self.random.randrange(len(self.held)))
        if self.random.random() < 0.7:
            self.results.add(self.pools.free(address, self.random.choice(self.streams)))
        else:
            self.results.add(self.pools.free_now(address))

    def work(self) -> None:
        self.pools.spin(self.random.choice(self.streams), 200_000)

    def wait(self) -> None:
        self.results.add(self.pools.sync(self.random.choice(self.streams)))

    def trim(self) -> None:
        self.results.add(self.pools.trim(self.pools.default(), self.size()))

    def keep(self) -> None:
        threshold = self.random.choice([0, 64 * MIB, 1 << 62])
        self.results.add(self.pools.put(self.pools.default(), THRESHOLD, threshold))

    def replace(self) -> None:
        self.results.add(self.pools.destroy(self.made[1]))
        self.made[1] = self.pools.made()

    def run(self, steps: int) -> None:
        moves = [self.take, self.give, self.work, self.wait, self.trim, self.keep, self.replace]
        weights = [40, 36, 6, 8, 4, 3, 3]
        assert self.pools.driver.cuCtxSetCurrent(self.pools.context) == 0
        for move in self.random.choices(moves, weights, k=steps):
            move()

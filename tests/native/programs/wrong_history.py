"""A random history of all kinds of memory with any sizes, rightly and wrongly freed.

Runs in a container. What the books say is held against the driver's account after every step.
"""

import ctypes
import random
from collections.abc import Callable
from typing import Any

from tests.native.programs import memory_views as mv
from tests.native.programs import pool_client as pc
from tests.native.programs import virtual_client as vm
from tests.native.programs.shim_client import OUT_OF_MEMORY

PAGE, U64, SIZE = vm.PAGE, vm.U64, vm.SIZE
SIZES = [0, 1, 511, PAGE - 1, PAGE, 40 * PAGE, 64 * PAGE, 65 * PAGE, 1 << 32, 1 << 63]
SIZES += [(1 << 64) - less for less in (32 << 20, 512, 2, 1)]
cuda = vm.cuda
ROWS = ctypes.byref(SIZE())

Thing = tuple[str, int]
"""By what family of functions it is freed, and its address or handle."""


class History:
    def __init__(self, seed: int, others: int) -> None:
        """others: bytes of the GPU that are not this container's."""
        self.random, self.others = random.Random(seed), others
        self.held: list[Thing] = []
        self.gone: list[Thing] = []
        self.base, self.mapped = vm.reserve(16 * PAGE), dict[int, int]()
        self.codes: set[int] = set()

    def size(self) -> int:
        if self.random.random() < 0.3:
            return self.random.choice(SIZES)
        return 1 + self.random.getrandbits(self.random.randrange(8, 27))

    def take(self) -> None:
        """Now and then with nowhere to put the address."""
        address, size = U64(), SIZE(self.size())
        out = None if self.random.random() < 0.05 else ctypes.byref(address)
        height = SIZE(self.random.choice((0, 1, 7, 1 << 33)))
        ways: tuple[tuple[str, Callable[[], int]], ...] = (
            ("memory", lambda: cuda.cuMemAlloc_v2(out, size)),
            ("memory", lambda: cuda.cuMemAllocManaged(out, size, self.random.randrange(4))),
            ("memory", lambda: cuda.cuMemAllocPitch_v2(out, ROWS, size, height, 4)),
            ("memory", lambda: cuda.cuMemAllocAsync(out, size, None)),
            ("memory", lambda: cuda.cuMemAllocAsync_ptsz(out, size, None)),
            ("physical", lambda: self.create(out, SIZE(self.random.randrange(1, 9) * PAGE))),
            ("physical", lambda: self.create(out, size)),
        )
        family, way = self.random.choice(ways)
        self.settle(way(), (family, address.value))

    def create(self, out: Any, size: ctypes.c_size_t) -> int:
        kind, device = self.random.choice((0, 1, 1, 1, 3)), self.random.choice((0, 0, 0, -1, 99))
        return int(cuda.cuMemCreate(out, size, ctypes.byref(vm.properties(device, kind)), U64(0)))

    def settle(self, code: int, thing: Thing) -> None:
        self.codes.add(code)
        if code == 0:
            self.held.append(thing)

    def pool(self) -> None:
        """One that is destroyed before what it gave is freed."""
        pool, address, size = ctypes.c_void_p(), U64(), SIZE(self.size())
        props = pc.PoolProps(1, 0, pc.ON_DEVICE, 0, None, 0)
        assert cuda.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(props)) == 0
        code = cuda.cuMemAllocFromPoolAsync(ctypes.byref(address), size, pool, None)
        assert cuda.cuMemPoolDestroy(pool) == 0
        self.settle(code, ("memory", address.value))

    def map(self) -> None:
        handles = [value for family, value in self.held if family == "physical"] or [5]
        at, size = self.base + self.random.randrange(16) * PAGE, self.random.randrange(9) * PAGE
        if vm.map_at(at, size, self.random.choice(handles)) == 0:
            self.mapped[at] = size

    def unmap(self) -> None:
        at = self.random.choice([*self.mapped, self.base])
        if vm.unmap(at, self.mapped.get(at, (1 << 64) - 1)) == 0:
            del self.mapped[at]

    def give(self) -> None:
        if not self.held:
            return
        family, value = self.held.pop(self.random.randrange(len(self.held)))
        ways: dict[str, tuple[Callable[[Any], int], ...]] = {
            "memory": (cuda.cuMemFree_v2, lambda at: cuda.cuMemFreeAsync(at, None)),
            "physical": (cuda.cuMemRelease,),
        }
        assert self.random.choice(ways[family])(U64(value)) == 0
        self.gone.append((family, value))

    def mistake(self) -> None:
        """Free again, inside of it, or as what it is not."""
        held = {value for _, value in self.held}
        things = [*self.held[-2:], *self.gone[-2:], ("memory", self.base)]
        wrong = [value + self.random.choice((0, 1, 512, PAGE)) for _, value in things]
        for value in {*wrong, 0} - held:
            cuda.cuMemFree_v2(U64(value)), cuda.cuMemFreeAsync(U64(value), None)
            vm.release(value)
        for family, value in self.held[:2]:
            other = vm.release if family == "memory" else lambda at: cuda.cuMemFree_v2(U64(at))
            assert other(value) != 0

    def wait(self) -> None:
        assert cuda.cuCtxSynchronize() == 0

    def difference(self) -> list[int]:
        """Of the books and the account: both, if there is one."""
        mv.of_driver()  # brings the books up to date
        books = mv.of_management()[1]["NVML"]
        truth = vm.figures(mv.real)[0] - self.others
        return [] if books == truth else [books, truth]

    def end(self) -> None:
        while self.held:
            self.give()
        for at, size in self.mapped.items():
            assert vm.unmap(at, size) == 0
        self.wait()


MOVES = ["take"] * 3 + ["give"] * 3 + ["map"] * 2 + ["pool", "unmap", "mistake", "wait"]


def run(seed: int, steps: int, others: int) -> list[object]:
    """What went wrong, and the codes of all allocations."""
    assert vm.begin() == 0
    history, wrong = History(seed, others), list[object]()
    for step in range(steps):
        move = history.random.choice(MOVES)
        getattr(history, move)()
        difference = history.difference()
        if difference:
            wrong.append([step, move, *difference])
    history.end()
    if history.difference() or vm.figures(mv.real)[0] != others:
        wrong.append(["end", vm.figures(mv.real)[0] - others])
    assert OUT_OF_MEMORY in history.codes
    return wrong

"""A random walk over everything that takes memory of a GPU, whose every code is told.

What it does depends on its seed and on the codes alone, so that the driver on a GPU that has no
more than a limit, and the shim that holds that limit on a larger one, must answer alike.

Kinds of memory give back to the GPU at different times. Between two kinds it makes a lull: all work
is done, and nothing is kept that is not in use. Pools are used in one of two ways: requests of any
size with no work in flight, or requests of whole pieces of a pool, whatever is in flight; between
the two it is emptied. So what remains of it does not depend on when a kernel ends.
"""

import ctypes
import random
from collections.abc import Callable
from typing import Any

from tests.native.programs import virtual_client
from tests.native.programs.pool_client import MIB, THRESHOLD, Pools

PIECE = 32 * MIB
FOLLOW_EVENTS = 1
FOR_EVER = 1 << 62
THREAD_LOCAL = 1
SPIN_NS = 300_000
HELD = 300 * MIB


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.pools = Pools()
        self.driver = self.pools.driver
        self.pool = self.pools.default()
        self.streams: list[Any] = [None, *(self.pools.stream() for _ in range(3))]
        self.event = ctypes.c_void_p()
        assert self.driver.cuEventCreate(ctypes.byref(self.event), 2) == 0
        self.codes: list[str] = []
        assert self.pools.plain(HELD)[0] == 0  # for good, so that the end is never far
        self.plain: list[int] = []
        self.virtual: list[int] = []
        self.pooled: list[int] = []
        self.kept: list[int] = []
        self.graphs = [self.graph(size * MIB) for size in (1, 20, 90, 300, 520, 700)]
        self.keeper, self.keeper_address = self.graph(110 * MIB, keep=True)
        self.note("first graph", self.driver.cuGraphLaunch(self.graphs[0][0], self.streams[1]))

    def note(self, what: str, code: int) -> int:
        self.codes.append(f"{what}: {code}")
        return code

    def size(self, bits: int) -> int:
        return 1 + self.random.getrandbits(self.random.randrange(10, bits))

    def stream(self) -> Any:
        return self.random.choice(self.streams)

    def graph(self, size: int, *, keep: bool = False) -> tuple[Any, int]:
        """A graph that allocates, runs a kernel and frees."""
        stream, graph, executable = self.streams[1], ctypes.c_void_p(), ctypes.c_void_p()
        assert self.driver.cuStreamBeginCapture_v2(stream, THREAD_LOCAL) == 0
        address = self.pools.had(size, stream)
        self.pools.spin(stream, SPIN_NS)
        if not keep:
            assert self.pools.free(address, stream) == 0
        assert self.driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
        made = self.driver.cuGraphInstantiateWithFlags(
            ctypes.byref(executable), graph, ctypes.c_uint64(0)
        )
        assert made == 0, made
        return executable, address

    def lull(self, *, empty: bool = False) -> None:
        while empty and self.pooled:
            self.note("free", self.pools.free(self.pooled.pop(), None))
        self.note("wait for all", self.driver.cuCtxSynchronize())
        self.note("trim the pool", self.pools.trim(self.pool))
        self.note("trim graphs", self.driver.cuDeviceGraphMemTrim(0))

    def join(self, after: Any, before: Any) -> None:
        """What the one stream does next comes after what the other was given."""
        self.note("record", self.driver.cuEventRecord(self.event, before))
        self.note("follow", self.driver.cuStreamWaitEvent(after, self.event, 0))

    def take_plain(self) -> None:
        size = self.size(29)
        code, address = self.pools.plain(size)
        if self.note(f"plain {size}", code) == 0:
            self.plain.append(address)

    def take_virtual(self) -> None:
        size = self.random.randrange(1, 150) * 2 * MIB
        code, handle = virtual_client.create(size)
        if self.note(f"virtual {size}", code) == 0:
            self.virtual.append(handle)

    def take_pooled(self, size: int) -> None:
        code, address = self.pools.alloc(size, self.stream())
        if self.note(f"pooled {size}", code) == 0:
            self.pooled.append(address)

    def give(self, held: list[int], call: Callable[[int], int]) -> None:
        if held:
            self.note("free", call(held.pop(self.random.randrange(len(held)))))

    def give_pooled(self) -> None:
        self.give(self.pooled, lambda address: self.pools.free(address, self.stream()))

    def set_pool(self) -> None:
        attribute, values = self.random.choice(
            [(THRESHOLD, [0, 64 * MIB, FOR_EVER]), (FOLLOW_EVENTS, [0, 1])]
        )
        self.note("set", self.pools.put(self.pool, attribute, self.random.choice(values)))

    def separate_memory(self) -> None:
        moves: list[Callable[[], None]] = [
            self.take_plain,
            self.take_virtual,
            lambda: self.give(self.plain, self.pools.free_now),
            lambda: self.give(self.virtual, virtual_client.release),
        ]
        self.random.choice(moves)()

    def quiet_pools(self) -> None:
        move = self.random.random()
        if move < 0.5:
            self.take_pooled(self.size(25))
        elif move < 0.9:
            self.give_pooled()
        elif move < 0.95:
            self.note("wait", self.pools.sync(self.stream()))
        else:
            self.set_pool()

    def busy_pools(self) -> None:
        move = self.random.random()
        if move < 0.45:
            self.take_pooled(PIECE - self.random.randrange(PIECE // 2))
        elif move < 0.8:
            stream = self.stream()
            self.pools.spin(stream, SPIN_NS)
            self.give(self.pooled, lambda address: self.pools.free(address, stream))
        elif move < 0.95:
            self.join(self.stream(), self.stream())
        else:
            self.replace_stream()

    def replace_stream(self) -> None:
        at = self.random.randrange(1, len(self.streams))
        self.note("wait", self.pools.sync(self.streams[at]))
        self.note("destroy", self.driver.cuStreamDestroy_v2(self.streams[at]))
        self.streams[at] = self.pools.stream()

    def run_graphs(self) -> None:
        if self.random.random() < 0.9:
            at = self.random.randrange(len(self.graphs))
            executable, _ = self.graphs[at]
            self.note(f"graph {at}", self.driver.cuGraphLaunch(executable, self.stream()))
        elif self.kept:
            self.note("free", self.pools.free_now(self.kept.pop()))
        elif self.note("keeper", self.driver.cuGraphLaunch(self.keeper, self.stream())) == 0:
            self.kept.append(self.keeper_address)

    def run(self, phases: int, steps: int) -> None:
        kinds = [self.separate_memory, self.quiet_pools, self.busy_pools, self.run_graphs]
        kind = kinds[0]
        for _ in range(phases):
            last, kind = kind, self.random.choice(kinds)
            self.lull(empty=self.busy_pools in (last, kind) and last != kind)
            for _ in range(steps):
                kind()

"""The words of test_seams.py, inside of the container: all kinds of memory in one program."""

import ctypes
import random
import sys
import time
from typing import Any

from tests.native.programs import virtual_client
from tests.native.programs.overhead_client import try_create, try_load, unload
from tests.native.programs.pool_client import (
    MIB,
    ON_DEVICE,
    PINNED,
    THRESHOLD,
    LimitedPools,
    PoolProps,
)
from tests.native.programs.shim_client import OUT_OF_MEMORY, SUCCESS, allocate, free

KEEP_ALL = 1 << 62
RESULTS = (SUCCESS, OUT_OF_MEMORY)


class AllocNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = (
        ("pool", PoolProps),
        ("access", ctypes.c_void_p),
        ("access_count", ctypes.c_size_t),
        ("size", ctypes.c_size_t),
        ("address", ctypes.c_uint64),
    )


class Program(LimitedPools):
    """A program with a context on device 0; each word returns the driver's code."""

    def __init__(self, limit: int, seed: int = 0) -> None:
        super().__init__(limit)
        self.choice = random.Random(seed)
        self.addresses: list[int] = []
        self.pooled: list[int] = []
        self.modules: list[tuple[str, int | None]] = []
        self.mapped: list[tuple[int, int]] = []
        self.graphs: list[ctypes.c_void_p] = []
        self.streams = [self.stream(), self.stream()]

    def graph(
        self, size: int, *, kind: int = PINNED, place: int = ON_DEVICE, ordinal: int = 0
    ) -> ctypes.c_void_p:
        """An executable graph that takes so much while it runs."""
        graph, node, last, made = (ctypes.c_void_p() for _ in range(4))
        params = AllocNode(pool=PoolProps(kind, 0, place, ordinal), size=size)
        call = self.driver
        assert call.cuGraphCreate(ctypes.byref(graph), 0) == SUCCESS
        added = call.cuGraphAddMemAllocNode(
            ctypes.byref(node), graph, None, ctypes.c_size_t(0), ctypes.byref(params)
        )
        assert added == SUCCESS
        address = ctypes.c_uint64(params.address)
        freed = call.cuGraphAddMemFreeNode(
            ctypes.byref(last), graph, ctypes.byref(node), ctypes.c_size_t(1), address
        )
        assert freed == SUCCESS
        flags = ctypes.c_ulonglong(0)
        assert call.cuGraphInstantiateWithFlags(ctypes.byref(made), graph, flags) == SUCCESS
        return made

    def launch(self, made: ctypes.c_void_p, stream: Any = None) -> int:
        return int(self.driver.cuGraphLaunch(made, stream))

    def trim_graphs(self, driver: Any = None) -> int:
        return int((driver or self.driver).cuDeviceGraphMemTrim(0))

    def size(self) -> int:
        return self.choice.randrange(1, 100 * MIB)

    def take(self) -> int:
        result, address = allocate(self.driver, self.size())
        self.addresses += [address] if result == SUCCESS else []
        return result

    def give(self) -> int:
        return free(self.driver, self.addresses.pop()) if self.addresses else SUCCESS

    def take_pooled(self) -> int:
        result, address = self.alloc(self.size(), self.choice.choice(self.streams))
        self.pooled += [address] if result == SUCCESS else []
        return result

    def give_pooled(self) -> int:
        stream = self.choice.choice(self.streams)
        return self.free(self.pooled.pop(), stream) if self.pooled else SUCCESS

    def wait(self) -> int:
        stream = self.choice.choice([*self.streams, None])
        return self.sync(stream) if stream else int(self.driver.cuCtxSynchronize())

    def keep(self) -> int:
        return self.put(self.default(), THRESHOLD, self.choice.choice([0, KEEP_ALL]))

    def load(self) -> int:
        result, handle = try_load("cuModuleLoadData", self.size() // 2)
        self.modules += [("cuModuleLoadData", handle)] if result == SUCCESS else []
        return result

    def drop(self) -> int:
        if self.modules:
            unload(*self.modules.pop())
        return SUCCESS

    def map(self) -> int:
        size = -(-self.size() // virtual_client.PAGE) * virtual_client.PAGE
        address = virtual_client.reserve(size)
        result = virtual_client.segment(address, size)
        if result == SUCCESS:
            self.mapped.append((address, size))
        else:
            virtual_client.free_address(address, size)
        return result

    def unmap(self) -> int:
        if not self.mapped:
            return SUCCESS
        where = self.mapped.pop()
        return virtual_client.unmap(*where) or virtual_client.free_address(*where)

    def run(self) -> int:
        if len(self.graphs) < 4:
            self.graphs.append(self.graph(self.size()))
        return self.launch(self.choice.choice(self.graphs), self.choice.choice(self.streams))

    def forget(self) -> int:
        return self.trim_graphs()

    def enter(self) -> int:
        """One more context, left again."""
        result, context = try_create()
        if result == SUCCESS:
            self.take()
            self.addresses = []  # they go with it, or are the last ones of the first context
            assert self.driver.cuCtxDestroy_v2(ctypes.c_void_p(context)) == SUCCESS
            assert self.driver.cuCtxSetCurrent(self.context) == SUCCESS
        return result


TAKING = ["take", "take_pooled", "load", "map", "run", "enter"]
LEAST, LONGEST_SECONDS = 12, 60.0
"""Granted to each program of a race; a refusal may wait for a measurement."""
GIVING = ["give", "give_pooled", "give_pooled", "wait", "wait", "keep", "drop", "unmap", "forget"]


def race(seed: int, limit: int, seconds: float) -> dict[str, int]:
    """All by turns, mostly at the limit; how often which came to what. Begins when it is told.

    For so long, and until it was granted enough: how fast that goes is the machine's.
    """
    program = Program(limit, seed)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    begun = time.monotonic()
    done = {"granted": 0, "refused": 0}
    while time.monotonic() - begun < (seconds if done["granted"] >= LEAST else LONGEST_SECONDS):
        words = TAKING if program.choice.random() < 0.6 else GIVING
        name = program.choice.choice(words)
        result = getattr(program, name)()
        assert result in RESULTS, (name, result)
        if words is TAKING:
            done["refused" if result else "granted"] += 1
    return done

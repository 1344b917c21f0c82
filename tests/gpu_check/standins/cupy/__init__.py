"""As much of CuPy as the workloads name."""

import gc
from types import SimpleNamespace

from gpu import Gpu, Memory

__version__ = "0.0-stand-in"
uint8 = SimpleNamespace(itemsize=1)


class OutOfMemoryError(MemoryError):
    pass


GPU = Gpu(OutOfMemoryError)
cuda = SimpleNamespace(memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError))


class ones:  # noqa: N801 - as CuPy calls it
    def __init__(self, count, *, dtype):
        self.memory = Memory(GPU, count * dtype.itemsize)


class arange:  # noqa: N801
    def __init__(self, count):
        self.memory, self.count = Memory(GPU, count * 8), count

    def sum(self):
        GPU.run(lambda: None)
        return self.count * (self.count - 1) // 2


def get_default_memory_pool():
    return SimpleNamespace(free_all_blocks=gc.collect)

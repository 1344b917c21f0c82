"""As much of CuPy as the workloads name."""

import gc
from types import SimpleNamespace

from gpu import Gpu, Memory

__version__ = "0.0-stand-in"
ELEMENTS_OF_A_NANOSECOND = 320
uint8, float32 = SimpleNamespace(itemsize=1), SimpleNamespace(itemsize=4)


class OutOfMemoryError(MemoryError):
    pass


GPU = Gpu(OutOfMemoryError)


def synchronize():
    GPU.driver.synchronize()


cuda = SimpleNamespace(
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    Stream=SimpleNamespace(null=SimpleNamespace(synchronize=synchronize)),
)


class ones:  # noqa: N801 - as CuPy calls it
    def __init__(self, count, *, dtype):
        self.memory, self.count = Memory(GPU, count * dtype.itemsize), count


def tanh(values, *, out):
    assert out is values
    GPU.run(lambda: None, 2000 + values.count // ELEMENTS_OF_A_NANOSECOND)


class arange:  # noqa: N801
    def __init__(self, count):
        self.memory, self.count = Memory(GPU, count * 8), count

    def sum(self):
        GPU.run(lambda: None)
        return self.count * (self.count - 1) // 2


def get_default_memory_pool():
    return SimpleNamespace(free_all_blocks=gc.collect)

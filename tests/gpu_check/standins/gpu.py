"""The GPU of the stand-ins, through the workloads' own view of the driver API.

Memory is really allocated and every operation is a kernel that spins, so that a limit is met and
launches are counted; what is computed is one number for a whole tensor, on the host.
"""

import ctypes
import os

from driver import OUT_OF_MEMORY, Driver, Failed

SPIN_NS = 2000


class Gpu:
    """Opened at the first use, as the CUDA runtime is."""

    def __init__(self, refusal):
        self.refusal = refusal
        self.stream = ctypes.c_void_p()
        self.captured = None  # what a capture has recorded so far
        self._driver = self._spin = None

    @property
    def driver(self):
        if self._driver is None:
            self._driver = Driver()
            self._spin = self._driver.function(self._driver.module(), "spin")
        return self._driver

    def allocate(self, size):
        try:
            return self.driver.allocate(max(1, size))
        except Failed as failed:
            if failed.number != OUT_OF_MEMORY:
                raise
            raise self.refusal("out of memory") from failed

    def run(self, work, nanoseconds=SPIN_NS):
        """A kernel: now, and at every replay of what is being captured."""
        work()
        driver = self.driver
        driver.spin(self._spin, nanoseconds, self.stream)
        if self.captured is not None:
            self.captured.append(work)


class Memory:
    """Of one tensor; freed with it, in the process that took it."""

    def __init__(self, gpu, size):
        self._gpu, self._address, self._owner = gpu, gpu.allocate(size), os.getpid()

    def __del__(self):
        if hasattr(self, "_address") and os.getpid() == self._owner:
            self._gpu.driver.library.cuMemFree_v2(self._address)

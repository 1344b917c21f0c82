"""The GPU of the stand-ins, through the workloads' own view of the driver API.

Memory is really allocated and every operation is a kernel that spins, so that a limit is met and
launches are counted; what is computed is one number for a whole tensor, on the host.
"""

import ctypes
import os
from pathlib import Path

from driver import OUT_OF_MEMORY, Driver, Failed

SPIN_NS = 2000
MAPS = Path("/proc/self/maps")
GRANULE = 2 << 20
MAPPED = {}
"""Address → size and handle of memory in an address range of its own."""


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of device 0."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("place", ctypes.c_int * 2),
        ("rest", ctypes.c_char * 16),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc: device 0 reads and writes."""

    _fields_ = (("place", ctypes.c_int * 2), ("flags", ctypes.c_int))


def mapped(driver, size):
    """As expandable segments take it."""
    size = ctypes.c_size_t(-(-max(1, size) // GRANULE) * GRANULE)
    properties, access = Properties(kind=1, place=(1, 0)), Access((1, 0), 3)
    handle = driver.get(ctypes.c_uint64, "cuMemCreate", size, ctypes.byref(properties), None)
    address = driver.get(ctypes.c_uint64, "cuMemAddressReserve", size, None, None, None)
    driver.call("cuMemMap", address, size, None, handle, None)
    driver.call("cuMemSetAccess", address, size, ctypes.byref(access), ctypes.c_size_t(1))
    MAPPED[address.value] = size, handle
    return address


def release(driver, address):
    if address.value in MAPPED:
        size, handle = MAPPED.pop(address.value)
        driver.call("cuMemUnmap", address, size)
        driver.call("cuMemRelease", handle)
        driver.call("cuMemAddressFree", address, size)
    elif "cudaMallocAsync" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""):
        driver.call("cuMemFreeAsync", address, None)
    else:
        driver.library.cuMemFree_v2(address)


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
            if "STANDIN_BYPASS" in os.environ and "libvcuda-shim-" in MAPS.read_text():
                self._driver.library = ctypes.CDLL("libvcuda-real.so.1")
            self._spin = self._driver.function(self._driver.module(), "spin")
        return self._driver

    def allocate(self, size):
        asked = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")
        try:
            if "cudaMallocAsync" in asked:
                words = ctypes.c_size_t(max(1, size)), self.stream
                return self.driver.get(ctypes.c_uint64, "cuMemAllocAsync", *words)
            if "expandable_segments" in asked:
                return mapped(self.driver, size)
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
            release(self._gpu.driver, self._address)

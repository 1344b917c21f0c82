"""Words for programs that ask NVML who is on a GPU, in a container or outside.

Plain ctypes, so that sizes, counts and arrays are exactly what the test says. Every way to ask
answers: the result with no room, the count it said, the result with room, and the rows.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

UINT, ULONG = ctypes.c_uint, ctypes.c_ulonglong
INSUFFICIENT_SIZE, NOT_FOUND, VERSION_MISMATCH = 7, 6, 25
COMPUTE, GRAPHICS, MPS, ACCOUNTED = range(4)
VERSION_1 = 1 << 24
Answer = tuple[int, int, int, list[list[int]]]


class First(ctypes.Structure):
    _fields_ = (("pid", UINT), ("memory", ULONG))


class Second(ctypes.Structure):
    _fields_ = (("pid", UINT), ("memory", ULONG), ("instance", UINT), ("part", UINT))


class Detail(ctypes.Structure):
    _fields_ = (*Second._fields_, ("protected", ULONG))


class Sample(ctypes.Structure):
    _fields_ = (("pid", UINT), ("time", ULONG), ("sm", UINT), ("rest", UINT * 3))


class LongerSample(ctypes.Structure):
    _fields_ = (("time", ULONG), ("pid", UINT), ("sm", UINT), ("rest", UINT * 5))


class DetailList(ctypes.Structure):
    _fields_ = (
        ("version", UINT),
        ("mode", UINT),
        ("count", UINT),
        ("list", ctypes.POINTER(Detail)),
    )


class SampleList(ctypes.Structure):
    _fields_ = (
        ("version", UINT),
        ("count", UINT),
        ("after", ULONG),
        ("list", ctypes.POINTER(LongerSample)),
    )


class Stats(ctypes.Structure):
    _fields_ = (
        ("gpu", UINT),
        ("memory", UINT),
        ("peak", ULONG),
        ("time", ULONG),
        ("start", ULONG),
        ("running", UINT),
        ("reserved", UINT * 5),
    )


LISTS = ["ComputeRunningProcesses", "GraphicsRunningProcesses", "MPSComputeRunningProcesses"]
VERSIONS: dict[str, type[ctypes.Structure]] = {"": First, "_v2": Second, "_v3": Second}


def rows(entries: Any, count: int, fields: list[str]) -> list[list[int]]:
    return [[getattr(entries[n], field) for field in fields] for n in range(count)]


def processes(library: Any, kind: int, version: str, device: Any) -> Answer:
    """Of one of the nine lists: pids and bytes."""
    function = getattr(library, f"nvmlDeviceGet{LISTS[kind]}{version}")
    count = UINT(0)
    sized = function(device, ctypes.byref(count), None)
    needed = count.value
    entries = (VERSIONS[version] * (needed + 1))()
    count.value = needed + 1
    filled = function(device, ctypes.byref(count), entries)
    return sized, needed, filled, rows(entries, count.value, ["pid", "memory"])


def details(library: Any, mode: int, device: Any) -> Answer:
    asked = DetailList(ctypes.sizeof(DetailList) | VERSION_1, mode, 0, None)
    sized = library.nvmlDeviceGetRunningProcessDetailList(device, ctypes.byref(asked))
    needed = asked.count
    asked.list = (Detail * max(needed, 1))()
    filled = library.nvmlDeviceGetRunningProcessDetailList(device, ctypes.byref(asked))
    return sized, needed, filled, rows(asked.list, asked.count, ["pid", "memory"])


def samples(library: Any, device: Any, after: int = 0) -> Answer:
    count = UINT(0)
    sized = library.nvmlDeviceGetProcessUtilization(device, None, ctypes.byref(count), ULONG(after))
    needed = count.value
    entries = (Sample * max(needed, 1))()
    filled = library.nvmlDeviceGetProcessUtilization(
        device, entries, ctypes.byref(count), ULONG(after)
    )
    return sized, needed, filled, rows(entries, count.value, ["pid", "sm"])


def longer_samples(library: Any, device: Any, after: int = 0) -> Answer:
    asked = SampleList(ctypes.sizeof(SampleList) | VERSION_1, 0, after, None)
    sized = library.nvmlDeviceGetProcessesUtilizationInfo(device, ctypes.byref(asked))
    needed = asked.count
    asked.list = (LongerSample * max(needed, 1))()
    filled = library.nvmlDeviceGetProcessesUtilizationInfo(device, ctypes.byref(asked))
    return sized, needed, filled, rows(asked.list, asked.count, ["pid", "sm"])


def accounted(library: Any, device: Any) -> list[int]:
    count = UINT(64)
    pids = (UINT * 64)()
    assert library.nvmlDeviceGetAccountingPids(device, ctypes.byref(count), pids) == 0
    return list(pids)[: count.value]


def account(library: Any, device: Any, pid: int) -> tuple[int, int]:
    """The result, and for how long it ran."""
    stats = Stats()
    result = library.nvmlDeviceGetAccountingStats(device, UINT(pid), ctypes.byref(stats))
    return result, stats.time


@contextmanager
def neighbour(size: int) -> Iterator[int]:
    """Another process of this container that holds `size` bytes; its pid on the host.

    It is the first process of a pid namespace, and so calls itself 1.
    """
    script = (
        "from tests.native.programs.shim_client import *\nimport os, sys\n"
        f"driver = cuda()\nassert driver.cuInit(0) == 0\nassert os.getpid() == 1\n"
        f"assert allocate(driver, {size})[0] == 0\n"
        "print(os.readlink('/proc/self'), flush=True)\nsys.stdin.read()\n"
    )
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", script]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def own_pid() -> int:
    return os.getpid()

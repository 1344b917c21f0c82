"""A few kernels for a tool to look at: `few.py KERNELS MIB`. Then an allocation of MIB, which may
be more than the limit, and a call that the driver itself refuses.

`calls` tells which files the calls go to, `loaded` those that are in the program, and `set` what
the tool set for it. Example: under ncu, on an H100, no call came to the shim.
"""

import ctypes
import os
import re
import sys
from pathlib import Path

from driver import SUCCESS, Driver, Failed
from say import say, shim_loaded

ROUNDS = 1_000_000
NOWHERE = ctypes.c_uint64(4096)
CALLS = ("cuInit", "cuMemAlloc_v2", "cuLaunchKernel")
SET = re.compile(r"^(LD_|CUDA_|NV_|NVTX_|QUADD_)")
LOADED = re.compile(r"/\S*(?:cuda|inject|intercept|nv)\S*\.so\S*$", re.IGNORECASE | re.MULTILINE)


class Symbol(ctypes.Structure):
    """Dl_info."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def file_of(function):
    """Empty where the loader knows none."""
    symbol = Symbol()
    address = ctypes.cast(function, ctypes.c_void_p)
    ctypes.CDLL(None).dladdr(address, ctypes.byref(symbol))
    return (symbol.file or b"").decode()


def loaded():
    return sorted(set(LOADED.findall(Path("/proc/self/maps").read_text())))


def answer(call, word):
    try:
        call(word)
    except Failed as failed:
        return failed.number
    return SUCCESS


if __name__ == "__main__":
    kernels, mib = map(int, sys.argv[1:])
    driver = Driver()
    spin = driver.function(driver.module(), "spin")
    stream = driver.stream()
    for _ in range(kernels):
        driver.spin(spin, ROUNDS, stream)
    driver.synchronize()
    refused, invalid = answer(driver.allocate, mib << 20), answer(driver.free, NOWHERE)
    calls = {name: file_of(getattr(driver.library, name)) for name in CALLS}
    given = {name: value for name, value in os.environ.items() if SET.match(name)}
    answers = {"refused": refused, "invalid": invalid}
    say(shim=shim_loaded(), **answers, calls=calls, loaded=loaded(), set=given)

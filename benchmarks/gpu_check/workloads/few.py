"""A few kernels for a tool to look at: `few.py KERNELS MIB`. Then an allocation of MIB, which may
be more than the limit, and a call that the driver itself refuses.
"""

import ctypes
import sys

from driver import SUCCESS, Driver, Failed
from say import say, shim_loaded

ROUNDS = 1_000_000
NOWHERE = ctypes.c_uint64(4096)


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
    say(shim=shim_loaded(), refused=refused, invalid=invalid)

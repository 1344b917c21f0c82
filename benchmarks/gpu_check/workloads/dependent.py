"""Pairs of kernels of which the second may begin before the first has ended (programmatic dependent
launch, as NCCL's and FlashAttention's kernels are launched).
"""

import ctypes
import time

from driver import Driver, Failed
from say import say, shim_loaded

PROGRAMMATIC_STREAM_SERIALIZATION = 6
SECONDS = 1.0
ROUNDS = 1_000_000
"""Milliseconds of work, so that the host is far ahead."""


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("shape", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


def main():
    driver = Driver()
    spin = driver.function(driver.module(), "spin")
    attribute = Attribute(id=PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
    config = Config(
        shape=(1, 1, 1, 1, 1, 1),
        stream=driver.stream(),
        attributes=ctypes.pointer(attribute),
        count=1,
    )
    rounds = ctypes.c_uint64(ROUNDS)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(rounds))
    begun, pairs = time.monotonic(), 0
    while time.monotonic() - begun < SECONDS:
        for _ in range(20):
            try:
                driver.call("cuLaunchKernelEx", ctypes.byref(config), spin, parameters, None)
            except (AttributeError, Failed) as error:
                say(shim=shim_loaded(), lacking=f"no dependent launch here: {error}")
                return
        driver.synchronize()
        pairs += 10
    say(shim=shim_loaded(), pairs=pairs, busy_s=time.monotonic() - begun)


if __name__ == "__main__":
    main()

"""Kernels in a stream of a green context, which has a part of the GPU's multiprocessors."""

import ctypes
import time

from driver import Driver, Failed
from say import say, shim_loaded

SM, DEFAULT_STREAM, NON_BLOCKING = 1, 1, 1
LEAST_SMS = 8
SECONDS = 1.0
ROUNDS = 1_000_000
"""Milliseconds of work, so that the host is far ahead."""

Resource = ctypes.c_ubyte * 144
"""CUdevResource."""


def green_stream(driver):
    """Raises Failed, and AttributeError where the driver has no green contexts."""
    whole = driver.get_second(Resource, "cuDeviceGetDevResource", driver.device, SM)
    part, rest, groups = Resource(), Resource(), ctypes.c_uint(1)
    driver.call(
        "cuDevSmResourceSplitByCount",
        *(ctypes.byref(out) for out in (part, groups, whole, rest)),
        0,
        LEAST_SMS,
    )
    described = driver.get(ctypes.c_void_p, "cuDevResourceGenerateDesc", ctypes.byref(part), 1)
    green = driver.get(
        ctypes.c_void_p, "cuGreenCtxCreate", described, driver.device, DEFAULT_STREAM
    )
    return driver.get(ctypes.c_void_p, "cuGreenCtxStreamCreate", green, NON_BLOCKING, 0)


def main():
    driver = Driver()
    spin = driver.function(driver.module(), "spin")
    try:
        stream = green_stream(driver)
    except (AttributeError, Failed) as error:
        say(shim=shim_loaded(), lacking=f"no green context here: {error}")
        return
    begun, kernels = time.monotonic(), 0
    while time.monotonic() - begun < SECONDS:
        for _ in range(20):
            driver.spin(spin, ROUNDS, stream)
        driver.call("cuStreamSynchronize", stream)
        kernels += 20
    say(shim=shim_loaded(), kernels=kernels, busy_s=time.monotonic() - begun)


if __name__ == "__main__":
    main()

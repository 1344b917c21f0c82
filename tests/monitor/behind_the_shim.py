"""A program that goes round the shim: it opens the driver by the path of its own file.

behind_the_shim.py MIB [with-the-shim]: holds so much; first, or not, it uses the shim properly.
"""

import ctypes
import signal
import sys
import time
from pathlib import Path

DRIVER = Path("/usr/local/nvidia/lib64/libvcuda-real.so.1")


def hold(driver: ctypes.CDLL, size: int) -> None:
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(size)) == 0


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
    if "with-the-shim" in sys.argv:
        hold(ctypes.CDLL("libcuda.so.1"), 1 << 20)
    hold(ctypes.CDLL(str(DRIVER.resolve())), int(sys.argv[1]) << 20)
    print("holding", flush=True)  # noqa: T201
    time.sleep(600)


main()

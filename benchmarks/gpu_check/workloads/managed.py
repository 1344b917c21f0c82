"""Managed memory, touched on the GPU, and then pieces of 64 MiB until the driver refuses."""

import ctypes
import time

from driver import Driver, Failed
from say import say, shim_loaded

MANAGED = 768 << 20
PIECE = 64 << 20
MOST = 4096
ATTACH_GLOBAL = 1
HELD_SECONDS = 2.5
"""The manager measures each second."""

if __name__ == "__main__":
    driver = Driver()
    address = driver.get(
        ctypes.c_uint64, "cuMemAllocManaged", ctypes.c_size_t(MANAGED), ATTACH_GLOBAL
    )
    driver.call("cuMemsetD8_v2", address, 1, ctypes.c_size_t(MANAGED))
    driver.synchronize()
    time.sleep(HELD_SECONDS)
    held, refused = 0, False
    while held < MOST * PIECE and not refused:
        try:
            driver.allocate(PIECE)
        except Failed:
            refused = True
        else:
            held += PIECE
    time.sleep(HELD_SECONDS)
    say(shim=shim_loaded(), managed=MANAGED, held=held + MANAGED, refused=refused)

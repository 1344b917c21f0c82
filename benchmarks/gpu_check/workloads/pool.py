"""cuMemAllocAsync in the default pool until refused; freed and trimmed, and then plain memory."""

import ctypes
import time

from driver import Driver, Failed
from say import say, shim_loaded

PIECE = 64 << 20
MOST = 4096
HELD_SECONDS = 1.5

if __name__ == "__main__":
    driver = Driver()
    stream = driver.stream()
    addresses, refused = [], False
    while len(addresses) < MOST and not refused:
        try:
            addresses.append(
                driver.get(ctypes.c_uint64, "cuMemAllocAsync", ctypes.c_size_t(PIECE), stream)
            )
        except Failed:
            refused = True
    time.sleep(HELD_SECONDS)
    for address in addresses:
        driver.call("cuMemFreeAsync", address, stream)
    driver.call("cuStreamSynchronize", stream)
    pool = driver.get(ctypes.c_void_p, "cuDeviceGetDefaultMemPool", driver.device)
    driver.call("cuMemPoolTrimTo", pool, ctypes.c_size_t(0))
    try:
        driver.free(driver.allocate(len(addresses) * PIECE // 2))
        alive = True
    except Failed:
        alive = False
    say(shim=shim_loaded(), held=len(addresses) * PIECE, refused=refused, alive=alive)

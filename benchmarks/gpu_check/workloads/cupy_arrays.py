"""CuPy: keep the GPU busy, take arrays until it is refused or MIB are held, and live on:
`cupy_arrays.py MIB`.
"""

import sys
import time

import cupy
from say import say, shim_loaded

WIDE = 1 << 26
BUSY_SECONDS, BATCH = 0.5, 50
PIECE = 64 << 20
HELD_SECONDS = 1.2
"""The manager measures each second."""


def busy():
    """Seconds, as the host sees them."""
    values = cupy.ones(WIDE, dtype=cupy.float32)
    cupy.tanh(values, out=values)  # compiles it
    cupy.cuda.Stream.null.synchronize()
    begun = time.monotonic()
    while time.monotonic() - begun < BUSY_SECONDS:
        for _ in range(BATCH):
            cupy.tanh(values, out=values)
        cupy.cuda.Stream.null.synchronize()
    return time.monotonic() - begun


def fill(most):
    arrays = []
    try:
        while len(arrays) * PIECE < most:
            arrays.append(cupy.ones(PIECE, dtype=cupy.uint8))
    except cupy.cuda.memory.OutOfMemoryError:
        return arrays, True
    return arrays, False


if __name__ == "__main__":
    seconds = busy()
    arrays, refused = fill(int(sys.argv[1]) << 20)
    held = len(arrays) * PIECE
    time.sleep(HELD_SECONDS)
    arrays.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    alive = int(cupy.arange(1000).sum()) == 499500
    say(
        shim=shim_loaded(),
        busy_s=seconds,
        held=held,
        refused=refused,
        alive=alive,
        cupy=cupy.__version__,
    )

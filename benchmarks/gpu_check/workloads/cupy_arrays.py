"""CuPy: fill the limit with arrays, be refused, live on and compute."""

import cupy
from say import say, shim_loaded

PIECE = 64 << 20


def fill():
    arrays = []
    try:
        while len(arrays) < (1 << 12):
            arrays.append(cupy.ones(PIECE, dtype=cupy.uint8))
    except cupy.cuda.memory.OutOfMemoryError:
        return arrays, True
    return arrays, False


if __name__ == "__main__":
    arrays, refused = fill()
    held = len(arrays) * PIECE
    arrays.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    alive = int(cupy.arange(1000).sum()) == 499500
    say(shim=shim_loaded(), held=held, refused=refused, alive=alive, cupy=cupy.__version__)

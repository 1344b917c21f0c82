"""The C library's heap in the node agent: one, not one for each of its threads.

glibc gives every thread that allocates a heap of its own, up to eight for each processor, and keeps
what was freed there for that thread. The agent has a dozen threads that allocate a little now and
then, and hold Python's lock or sleep otherwise: heaps of their own gain them nothing, and at 256
containers they held 6 MiB of which less than 1 was in use.
"""

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
"""Of <malloc.h>."""


def share_one_heap() -> None:
    """Call it before there are threads. No effect where the C library has no such setting."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_ARENA_MAX, 1)

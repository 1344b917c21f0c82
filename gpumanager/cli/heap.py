"""The C library's heap in the node agent: one for all threads, and what is free is given back.

glibc gives every thread that allocates a heap of its own, up to eight for each processor, and keeps
what was freed there for that thread. The agent has a dozen threads that allocate a little now and
then, and hold Python's lock or sleep otherwise: heaps of their own gain them nothing, and at 256
containers they held 6 MiB of which less than 1 was in use. Of the one heap only its end goes back
to the system by itself; a list of pods that was read leaves holes of whole pages. Its text does
not, as long as what is large is no part of the heap, which glibc changes when it meets some.

Python's search for garbage in cycles waits until the kubelet knows of us: what is made at the start
stays, and one look through all of it takes as long as an import of gRPC.
"""

import asyncio
import ctypes
import gc
from typing import Final

GIVE_BACK_SECONDS: Final = 10.0
"""It takes a millisecond or less."""

_OPTIONS: Final = {-8: 1, -3: 128 << 10}
"""Of <malloc.h>: M_ARENA_MAX, and M_MMAP_THRESHOLD, set to what it is at first."""


def start_without_collecting() -> None:
    """No search for garbage in cycles until `collect_again`."""
    gc.disable()


def collect_again() -> None:
    gc.enable()


def share_one_heap() -> None:
    """Call it before there are threads. No effect where the C library has no such settings."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", lambda *_: None)
    for option, value in _OPTIONS.items():
        set_option(option, value)


async def give_back_every(seconds: float) -> None:
    """Whole pages that nothing lies in, until cancelled."""
    gc.collect()
    gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while trim is not None:
        await asyncio.sleep(seconds)
        trim(0)

"""The alive locks of an allocation's processes: one byte of the books per slot.

A process holds its byte for its life, and a peer that takes back what a dead process held takes the
dead one's byte meanwhile (native/shim/core/peers.h). The manager takes none, it only looks.
"""

import fcntl
import os
import struct
from typing import Final

from vcuda_shim._shim import lib

_FLOCK: Final = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""


def locked(books: int, slot: int) -> bool:
    """Whether anybody else holds the byte of this slot. books: a descriptor of the file.

    Where the file system knows no locks nobody holds any.
    """
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, lib.VCUDA_ALIVE_BYTE + slot, 1, 0)
    try:
        answer = fcntl.fcntl(books, fcntl.F_OFD_GETLK, wanted)
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

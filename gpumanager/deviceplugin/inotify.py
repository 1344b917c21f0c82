"""The kernel's inotify, as much of it as telling that names in a directory have changed.

What has changed is not reported: whoever is told looks for himself, which is right also where
events were lost or have been overtaken.
"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

IN_MOVED_FROM: Final = 0x40
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
IN_ONLYDIR: Final = 0x1000000
NAMES: Final = IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF

EVENT_BYTES: Final = 64 << 10
"""Bytes of events that are taken at once."""
ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)


class Inotify:
    """One instance, as a descriptor that becomes readable. Raises OSError where there is none."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = _checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def watch(self, directory: Path) -> int | None:
        """Return a number for the directory that now lies there; None if there is none. Raises
        OSError."""
        try:
            return _checked(
                self._libc.inotify_add_watch(
                    self.descriptor, os.fsencode(directory), NAMES | IN_ONLYDIR
                )
            )
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise

    def forget(self, number: int) -> None:
        """A directory that is gone has been forgotten already, which is no error."""
        self._libc.inotify_rm_watch(self.descriptor, number)

    def drain(self) -> None:
        """Take all events."""
        try:
            while len(os.read(self.descriptor, EVENT_BYTES)) > EVENT_BYTES // 2:
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        os.close(self.descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

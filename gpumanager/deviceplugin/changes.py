"""Being woken when names in a directory may have changed: the kubelet's socket, or ours.

By inotify, also when the directory itself comes, goes or is replaced (its nearest ancestor that
exists is watched too). Where inotify is not to be had (nodes run out of instances), and once in a
while besides, by looking again.
"""

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.25
"""Seconds between two looks where nobody wakes us."""
WATCHED: Final = 10.0
"""Seconds between two looks where inotify does."""
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
    """The kernel's inotify: a descriptor that becomes readable when names in a directory change.

    What has changed is not reported: the caller looks again, which is right also where events were
    lost or have been overtaken. Raises OSError where there is none.
    """

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


class Changes:
    """Wakes all who wait. Use within one event loop; close it.

    polled: seconds between two looks where inotify raises OSError.
    """

    def __init__(
        self,
        directory: Path,
        *,
        polled: float = POLL_SECONDS,
        inotify: Callable[[], Inotify] = Inotify,
    ) -> None:
        self._directory = directory
        self._polled = polled
        self._new = inotify
        self._woken = asyncio.Event()
        self._inotify: Inotify | None = None
        self._watched: frozenset[int] = frozenset()

    @property
    def by_inotify(self) -> bool:
        return self._inotify is not None

    def open(self) -> None:
        """From now on be told, if that can be had."""
        try:
            self._inotify = self._new()
            self._arm()
        except OSError as error:
            self._poll(error)
            return
        asyncio.get_running_loop().add_reader(self._inotify.descriptor, self._on_events)

    def close(self) -> None:
        """Nobody is woken any more. Safe to repeat."""
        inotify, self._inotify = self._inotify, None
        if inotify is not None:
            asyncio.get_running_loop().remove_reader(inotify.descriptor)
            inotify.close()

    async def wait(self, within: float) -> None:
        """Until something may have changed since the caller last looked, which was just now."""
        woken = self._woken
        longest = WATCHED if self.by_inotify else self._polled
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(within, longest)):
                await woken.wait()
                return
        self._watch_anew()

    def wake(self) -> None:
        """As if something had changed."""
        woken, self._woken = self._woken, asyncio.Event()
        woken.set()

    def _on_events(self) -> None:
        """Directories are watched anew before anybody looks, so that nothing falls between."""
        if self._inotify is not None:
            self._inotify.drain()
            self._watch_anew()
            self.wake()

    def _watch_anew(self) -> None:
        try:
            self._arm()
        except OSError as error:
            self._poll(error)

    def _arm(self) -> None:
        if self._inotify is None:
            return
        # The directory, and its nearest ancestor, in which it may come.
        ancestor = next(path for path in self._directory.absolute().parents if path.is_dir())
        numbers = (self._inotify.watch(path) for path in (self._directory, ancestor))
        now = frozenset(number for number in numbers if number is not None)
        for gone in self._watched - now:
            self._inotify.forget(gone)
        self._watched = now

    def _poll(self, error: OSError) -> None:
        logger.warning(
            "%s cannot be watched (%s); polling every %g s instead",
            self._directory,
            error.strerror,
            self._polled,
        )
        self.close()

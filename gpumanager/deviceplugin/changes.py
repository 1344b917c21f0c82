"""Being woken when names in a directory may have changed: the kubelet's socket, or ours.

By inotify, also when the directory itself comes, goes or is replaced (its nearest ancestor that
exists is watched too). Where inotify is not to be had (nodes run out of instances), and once in a
while besides, by looking again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpumanager.deviceplugin.inotify import Inotify

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.25
"""Seconds between two looks where nobody wakes us."""
WATCHED: Final = 10.0
"""Seconds between two looks where inotify does."""


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

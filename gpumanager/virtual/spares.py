"""Directories made ahead: with their regions, and with a socket that listens already.

To make one takes as long as all the rest of an Allocate, for which the kubelet stands still. So a
few lie ready under names that no allocation can have, and one becomes an allocation's by a rename.
They are made in a thread while nobody waits; where none is ready, all is made on the spot. They are
nobody's until then, so that whoever starts removes those of a manager before.
"""

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import shutil
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from typing import Final, TypeVar

from gpumanager.errors import GpuManagerError
from gpumanager.virtual.books import Books, boot_id
from gpumanager.virtual.config import Config
from gpumanager.virtual.listener import bind
from gpumanager.virtual.values import AllocationID, Limit

log = logging.getLogger(__name__)

READY: Final = 4
"""For a pod of several containers, or a few pods one after another."""

PAUSE_SECONDS: Final = 0.02
"""Before one that was taken is made up for: who took it has more to do, and so has the kubelet."""

PREFIX: Final = ".spare-"
"""No allocation's name begins with a dot."""

RETRY_SECONDS: Final = 10.0

TAKEN: Final = (errno.ENOTEMPTY, errno.EEXIST)
"""The name of an allocation that has its directory."""

T = TypeVar("T")


async def at_once() -> None:
    """Nobody ever waits."""


@dataclass(slots=True)
class Spare:
    """Complete but for its name and its limits. Whoever takes it closes its parts."""

    directory: Path
    config: Config
    books: Books
    listening: socket

    @classmethod
    def make(cls, directory: Path) -> "Spare":
        """Raises OSError and GpuManagerError, and then leaves nothing open, and no directory."""
        with contextlib.ExitStack() as undo:
            undo.callback(shutil.rmtree, directory, ignore_errors=True)
            make_directory(directory)
            config = undo.enter_context(Config.prepare(directory, AllocationID(""), ()))
            books = undo.enter_context(Books.prepare(directory, boot_id()))
            spare = cls(directory, config, books, bind(directory))
            undo.pop_all()
            return spare

    def become(self, directory: Path) -> None:
        """From now on it is the allocation's of that name. Raises OSError, and then is as it was.

        The name is written first: whoever finds the directory finds it complete.
        """
        self.config.name(AllocationID(directory.name))
        os.rename(self.directory, directory)  # noqa: PTH104 - a Path would be made of the answer
        self.directory = directory
        self.config.directory = directory
        self.books.move(directory)

    def close(self) -> None:
        self.config.close()
        self.books.close()
        self.listening.close()

    def discard(self) -> None:
        """Nobody gets it any more."""
        self.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class Spares:
    """Those of one manager. root: the directory of all allocations.

    calm: returns when nobody waits for us.
    """

    def __init__(self, root: Path, calm: Callable[[], Awaitable[None]] = at_once) -> None:
        self._root = root
        self._calm = calm
        self._ready: deque[Spare] = deque()
        self._wanted = asyncio.Event()

    def take(self, directory: Path) -> Spare | None:
        """One that is `directory` now; None where none is ready, or that exists already."""
        while self._ready:
            spare = self._ready.popleft()
            self._wanted.set()
            try:
                spare.become(directory)
            except OSError as error:
                if error.errno in TAKEN:
                    self._ready.appendleft(spare)
                    return None
                log.info("%s: not used: %s", spare.directory, error.strerror)
                spare.close()  # somebody has removed it
                continue
            return spare
        return None

    async def keep(self) -> None:
        """Have some ready, until cancelled."""
        try:
            await asyncio.to_thread(remove_spares, self._root)
            while True:
                self._wanted.clear()
                await self._fill()
                await self._wanted.wait()
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._close()

    async def _fill(self) -> None:
        """What fails now will fail in Allocate, too, where it is said."""
        while len(self._ready) < READY:
            await self._calm()
            try:
                self._ready.append(await finished(lambda: Spare.make(self._fresh()), Spare.discard))
            except (GpuManagerError, OSError) as error:
                log.info("no directory can be made ahead: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _fresh(self) -> Path:
        return self._root / f"{PREFIX}{secrets.token_hex(8)}"

    def _close(self) -> None:
        for spare in self._ready:
            spare.discard()
        self._ready.clear()


def opened(
    undo: contextlib.ExitStack,
    directory: Path,
    allocation: AllocationID,
    limits: Sequence[Limit],
    spare: Spare | None,
) -> tuple[Config, Books]:
    """The regions of a directory, with these limits; `undo` closes them, and all of the spare."""
    if spare is not None:
        undo.callback(spare.close)
        spare.config.write(limits)
        return spare.config, spare.books
    config = undo.enter_context(Config.prepare(directory, allocation, limits))
    return config, undo.enter_context(Books.prepare(directory, boot_id()))


def make_directory(directory: Path) -> bool:
    """Whether it was not there. Any user of a container reaches in it what he can name; no user of
    the host sees what there is."""
    try:
        directory.mkdir(mode=0o711, parents=True)
    except FileExistsError:
        new = False
    else:
        new = True
    for closed in (directory.parent, directory):
        closed.chmod(0o711)
    return new


def remove_spares(root: Path) -> None:
    """Those of a manager before us. One that runs still makes others on the spot."""
    for left in root.glob(f"{PREFIX}*"):
        shutil.rmtree(left, ignore_errors=True)


async def finished(work: Callable[[], T], undo: Callable[[T], object]) -> T:
    """What a thread makes; undone if nobody wants it any more when it is there."""
    making = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        with contextlib.suppress(GpuManagerError, OSError):
            undo(await making)
        raise

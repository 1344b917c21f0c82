"""The journal on disk: whole, at whatever instant the node stops.

A change is one line, written behind the others into room that the file has already, and forced to
the disk: a crash leaves the line or not, and half of one is recognised. When the room is used up
(and at the start) a new file, with what is kept and new room, is written beside the old one,
forced, and renamed over it; then the directory is forced too. After any trouble with the disk the
next change begins a new file likewise, because nobody knows what the old one would say. Whoever
answers a grant writes it here first.
"""

import contextlib
import logging
import os
import time
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_log import FILL, change, line, opening, read, salvage
from gpumanager.grants.journal_text import Malformed

logger = logging.getLogger(__name__)

FILE_NAME: Final = "allocations.json"

ROOM: Final = 256 << 10
"""Bytes for changes in a new file; a pod that comes and goes writes about 3,000."""


NONE: Final = -1
"""The descriptor of no file."""


class JournalUnreadable(GpuManagerError):
    """The journal exists and cannot be used; nothing must be granted as if there were none."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"{path}: cannot read the journal of allocations: {cause}")


class JournalUnwritable(GpuManagerError):
    """A grant could not be written down, so it is not made."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"{path}: cannot write the journal of allocations: {cause}. "
            "No GPU is given out until it can be written: make room on its disk"
        )


class JournalFile:
    """One journal in one file. One writer, one call at a time; anybody may load."""

    def __init__(self, path: Path, room: int = ROOM) -> None:
        self.path = path
        self._next = path.with_name(path.name + ".next")
        self._room = room
        self._saved = Journal()
        self._descriptor = NONE
        self._number = 0
        self._used = 0
        self._size = 0

    def __del__(self) -> None:
        self._leave()

    def load(self) -> Journal:
        """What was saved last; an absent file is an empty journal. Raises JournalUnreadable."""
        try:
            log = read(self.path.read_bytes())
        except FileNotFoundError:
            return Journal()
        except OSError as error:
            raise JournalUnreadable(self.path, error.strerror or str(error)) from error
        except Malformed as error:
            raise JournalUnreadable(self.path, str(error)) from error
        if log.torn:
            logger.warning("%s: skipping the last line, which is incomplete", self.path)
        return log.journal

    def set_aside(self) -> tuple[Journal, Path]:
        """Put a file that cannot be used out of the way; what is whole in it, and where it is now.

        Where it cannot be moved it stays until it is replaced by the next change.
        """
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns():x}")
        try:
            whole = salvage(self.path.read_bytes())
        except (OSError, Malformed):
            whole = Journal()
        try:
            self.path.rename(aside)
        except OSError:
            return whole, self.path
        return whole, aside

    def save(self, journal: Journal) -> None:
        """Returns once the journal would survive a power cut. Raises JournalUnwritable."""
        try:
            if not self._extended(journal):
                self._renew(journal)
        except OSError as error:
            raise JournalUnwritable(self.path, error.strerror or str(error)) from error

    def tidy(self, journal: Journal) -> None:
        """Begin a new file if there is none or its room gets scarce, while nobody waits for it.

        Raises JournalUnwritable.
        """
        if self._descriptor != NONE and self._size - self._used >= self._room // 2:
            return
        try:
            self._renew(journal)
        except OSError as error:
            raise JournalUnwritable(self.path, error.strerror or str(error)) from error

    def _extended(self, journal: Journal) -> bool:
        """Whether the change fits into the file, and then is in it."""
        if self._descriptor == NONE:
            return False
        what = change(self._saved, journal)
        if not what:
            return True
        text = line(self._number, what)
        if self._used + len(text) > self._size:
            return False
        try:
            self._append(text)
            self._force()
        except OSError:
            self._leave()
            raise
        self._used += len(text)
        self._number += 1
        self._saved = journal
        return True

    def _renew(self, journal: Journal) -> None:
        """Where this fails before the file is replaced, the old one is still good for changes."""
        contents, number = opening(journal)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._write(contents + FILL * self._room)
            self._replace()
        except OSError:
            with contextlib.suppress(OSError):
                self._next.unlink()
            raise
        self._leave()
        self._force_directory()
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
        self._number, self._used = number, len(contents)
        self._size = len(contents) + self._room
        self._saved = journal

    def _leave(self) -> None:
        if self._descriptor != NONE:
            os.close(self._descriptor)
            self._descriptor = NONE

    # The steps between which a node may stop.

    def _append(self, text: bytes) -> None:
        if os.pwrite(self._descriptor, text, self._used) != len(text):
            raise OSError("only a part was written")

    def _force(self) -> None:
        os.fdatasync(self._descriptor)

    def _write(self, contents: bytes) -> None:
        with self._next.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())

    def _replace(self) -> None:
        self._next.replace(self.path)

    def _force_directory(self) -> None:
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

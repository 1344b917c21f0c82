"""The journal on disk, consistent at whatever instant the node stops.

A change is one line, appended into space that the file has already, and synced to disk: a crash
leaves the whole line, none, or a half that its checksum shows. When the space is used up (and at
the start) a new file, with all grants and new space, is written beside the old one, synced, and
renamed over it; then the directory is synced. After an error of the disk the next change begins a
new file in the same way, because the contents of the old one are unknown. A grant is written here
before it is answered.
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

CHANGE_BYTES: Final = 256 << 10
"""Bytes for changes in a new file; one pod writes about 3,000 from admission to release."""


NONE: Final = -1
"""No file is open."""


class JournalUnreadable(GpuManagerError):
    """The journal exists and cannot be read; the agent must not start as if there were none."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"{path}: cannot read the journal of allocations: {cause}")


class JournalUnwritable(GpuManagerError):
    """A grant could not be written, so it is not made."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"{path}: cannot write the journal of allocations: {cause}. "
            "No GPU is given out until it can be written: make room on its disk"
        )


class JournalFile:
    """One journal in one file. One writer, one call at a time; any process may load."""

    def __init__(self, path: Path, room: int = CHANGE_BYTES) -> None:
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
        """Return the journal as saved last; empty if there is no file. Raises JournalUnreadable."""
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
        """Rename a damaged file. Returns the grants that are readable, and its new path.

        A file that cannot be renamed stays until the next change replaces it.
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
        """Write the journal, and return once it is synced to disk. Raises JournalUnwritable."""
        try:
            if not self._extended(journal):
                self._renew(journal)
        except OSError as error:
            raise JournalUnwritable(self.path, error.strerror or str(error)) from error

    def tidy(self, journal: Journal) -> None:
        """Begin a new file if there is none or its space is half used, while no call waits.

        Raises JournalUnwritable.
        """
        if self._descriptor != NONE and self._size - self._used >= self._room // 2:
            return
        try:
            self._renew(journal)
        except OSError as error:
            raise JournalUnwritable(self.path, error.strerror or str(error)) from error

    def _extended(self, journal: Journal) -> bool:
        """Append the change if it fits into the file; returns whether it did."""
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
        """Write a new file. On a failure before the rename, the old one still takes changes."""
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

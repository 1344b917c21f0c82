"""The journal on disk: whole or not at all, at whatever instant the node stops.

A new journal is written beside the old one, forced to the disk, and renamed over it; then the
directory is forced too. A crash before the rename leaves the old journal, one after it the new.
Whoever answers a promise writes it here first.
"""

import os
from pathlib import Path
from typing import Final

from gpumanager.allocator.journal import Journal, Malformed, decode, encode
from gpumanager.errors import GpuManagerError

FILE_NAME: Final = "allocations.json"


class JournalUnreadable(GpuManagerError):
    """The journal exists and cannot be used; we do not start, rather than give a GPU twice."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"{path}: cannot read the journal of allocations: {cause}. Restore it from a copy or, "
            "when no pod with GPUs runs on this node, remove it and start again"
        )


class JournalUnwritable(GpuManagerError):
    """A promise could not be written down, so it is not made."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(f"{path}: cannot write the journal of allocations: {cause}")


class JournalFile:
    """One journal in one file. One writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = path.with_name(path.name + ".next")

    def load(self) -> Journal:
        """What was saved last; an absent file is an empty journal. Raises JournalUnreadable."""
        try:
            return decode(self.path.read_bytes())
        except FileNotFoundError:
            return Journal()
        except OSError as error:
            raise JournalUnreadable(self.path, error.strerror or str(error)) from error
        except Malformed as error:
            raise JournalUnreadable(self.path, str(error)) from error

    def save(self, journal: Journal) -> None:
        """Returns once the journal would survive a power cut. Raises JournalUnwritable."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write(encode(journal))
            self._replace()
            self._force_directory()
        except OSError as error:
            raise JournalUnwritable(self.path, error.strerror or str(error)) from error

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

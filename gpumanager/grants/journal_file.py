"""The journal on disk: a log, consistent at whatever instant the node stops.

    9c41f2e0 0 {"kept": 2, "version": 3}        what follows begins with two grants
    51b0a7d3 1 {"drop": [], "put": [{"id": "7f…", "shares": [["GPU-1f3a…", 30, 8]], …}]}
    0e6612aa 2 {"drop": [], "put": [{…}]}
    c9d35b41 3 {"drop": ["7f…"], "put": []}     and then a line for every change

Each line has a checksum over the rest of it, and a number one higher than the line before. A change
is one line, appended into space that the file has already (empty lines), and synced to disk before
the next is begun: a crash leaves the whole line, none, or a half that its checksum shows. Such a
half was never answered to anybody, and is left out. Anything else that does not add up is damage,
never skipped.

When the space is used up (and at the start) a new file, with all grants and new space, is written
beside the old one, synced, and renamed over it; then the directory is synced. After an error of the
disk the next change begins a new file in the same way, because the contents of the old one are
unknown. A grant is written here before it is answered.
"""

import contextlib
import json
import logging
import os
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.grants.grant import Grant
from gpumanager.grants.journal import Journal
from gpumanager.grants.journal_text import (
    Malformed,
    decode_document,
    dump,
    grant_of,
    record,
    understood,
)
from gpumanager.ids import AllocationID

logger = logging.getLogger(__name__)

FILE_NAME: Final = "allocations.json"
VERSION: Final = 3
READABLE: Final = (2, VERSION)
"""Version 2 had other records in the same lines."""
CHANGE_BYTES: Final = 256 << 10
"""Bytes for changes in a new file; one pod writes about 3,000 from admission to release."""
FILL: Final = b"\n"
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
            journal, torn = read(self.path.read_bytes())
        except FileNotFoundError:
            return Journal()
        except OSError as error:
            raise JournalUnreadable(self.path, error.strerror or str(error)) from error
        except Malformed as error:
            raise JournalUnreadable(self.path, str(error)) from error
        if torn:
            logger.warning("%s: skipping the last line, which is incomplete", self.path)
        return journal

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
        with self._writing():
            if not self._extended(journal):
                self._renew(journal)

    def tidy(self, journal: Journal) -> None:
        """Begin a new file if there is none or its space is half used, while no call waits.

        Raises JournalUnwritable.
        """
        if self._descriptor == NONE or self._size - self._used < self._room // 2:
            with self._writing():
                self._renew(journal)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JournalUnwritable(self.path, error.strerror or str(error)) from error

    def _extended(self, journal: Journal) -> bool:
        """Append the change if it fits into the file; returns whether it did."""
        if self._descriptor == NONE:
            return False
        put, drop = change(self._saved, journal)
        if not put and not drop:
            return True
        text = line(self._number, put, drop)
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


def change(before: Journal, after: Journal) -> tuple[list[Grant], list[AllocationID]]:
    """Return what is so now, and what is forgotten; grants that stay are the same objects."""
    old, new = before.grants, after.grants
    put = [one for name, one in new.items() if old.get(name) is not one]
    return put, [name for name in old if name not in new]


def line(number: int, put: Iterable[Grant], drop: Iterable[AllocationID] = ()) -> bytes:
    """Return one line of the log."""
    return _line(number, {"put": [record(a) for a in put], "drop": list(drop)})


def opening(journal: Journal) -> tuple[bytes, int]:
    """Return the lines of a new log that begins with `journal`, and the number of the next."""
    kept = journal.grants.values()
    lines = [_line(0, {"version": VERSION, "kept": len(kept)})]
    lines += (line(number, (one,)) for number, one in enumerate(kept, 1))
    return b"".join(lines), len(lines)


def read(contents: bytes) -> tuple[Journal, bool]:
    """Return the journal in a file, be it a log or an older form, and whether its last line is half
    there, and left out. Raises Malformed."""
    if contents.lstrip().startswith((b"{", b"[")):
        return decode_document(contents, VERSION), False
    texts, end = list[str](), 0
    while (stop := contents.find(FILL, end)) > end:
        parsed = _parse(contents[end:stop])
        if parsed is None or parsed[0] != len(texts):
            break
        texts.append(parsed[1])
        end = stop + 1
    if not texts:
        raise Malformed("not a journal (its first line is none of ours)")
    with understood():
        head = json.loads(texts[0])
        version, kept = int(head["version"]), int(head["kept"])
    if version not in READABLE:
        raise Malformed(f"version {version}; this agent knows up to {VERSION}")
    rest = contents[end:].strip(FILL)
    if len(texts) <= kept:
        raise Malformed(f"line {len(texts) + 1} of the {kept + 1} it begins with is damaged")
    if rest and any(_parse(text) for text in rest.split(FILL)):
        raise Malformed(f"line {len(texts) + 1} is damaged, and whole lines follow it")
    return _replayed(texts[1:]), bool(rest)


def salvage(contents: bytes) -> Journal:
    """Return what is whole in a damaged log; of a grant that was dropped that may be lost."""
    found = (_parse(text) for text in contents.split(FILL) if text)
    return _replayed(text for _, text in filter(None, found) if '"put"' in text)


def _parse(text: bytes) -> tuple[int, str] | None:
    """Return number and contents of a line, if it is whole."""
    checksum, _, rest = text.partition(b" ")
    number, _, document = rest.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(rest) or not number.isdigit():
        return None
    return int(number), document.decode()


def _line(number: int, document: dict[str, Any]) -> bytes:
    rest = f"{number} {dump(document)}".encode()
    return b"%08x %s" % (zlib.crc32(rest), rest) + FILL


def _replayed(texts: Iterable[str]) -> Journal:
    kept: dict[AllocationID, Grant] = {}
    with understood():
        for text in texts:
            document = json.loads(text)
            kept |= {a.id: a for a in map(grant_of, document["put"])}
            for name in document["drop"]:
                kept.pop(AllocationID(name), None)
    return Journal(kept)

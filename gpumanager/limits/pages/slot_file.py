"""The file `books` of an allocation: the process of each slot, and where the books are.

The books themselves are memory that dies with its last holder (sealed_memory.py). This file is for
the manager after this one: it says which processes to ask for the books, and whose slot is whose,
in words that no container can write. Root alone may read it. It counts for one boot of the machine,
so nothing waits for a disk.

All its blocks are there before it is used, and it is changed in place: a full disk refuses a new
allocation, and never a process of one that exists. Up to layout 3 the file of this name was the
books, so that an earlier manager refuses a directory of ours instead of beginning new books.
"""

import errno
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from gpumanager.limits.pages.mapping import (
    RegionBroken,
    RegionUnreadable,
    StructLayout,
    create,
    write_whole,
)
from gpumanager.limits.pages.sealed_memory import Identity
from gpumanager.limits.processes import Process, find, runs_in
from gpumanager.names import BOOKS_NAME
from vcuda_shim._shim import lib

VERSION: Final = 1
MAGIC: Final = 0x544C5356
"""`VSLT`."""

_HEAD: Final = struct.Struct("<II16sQQIIQ8x")
"""magic, version, boot, device and inode of the books, the manager's pid, 0, its start time."""

_ROW: Final = struct.Struct("<IIQQ")
"""pid, 0, start time, stack: as in Process. pid 0: nobody's."""

SLOT_FILE_BYTES: Final[int] = _HEAD.size + _ROW.size * lib.VCUDA_SLOTS
TABLE: Final = StructLayout(BOOKS_NAME, "struct vcuda_books", MAGIC, 0o600)


@dataclass(slots=True)
class SlotFile:
    """rows: each slot in use. manager: the one that wrote it last."""

    directory: Path
    boot: bytes
    books: Identity
    manager: Process
    rows: dict[int, Process] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.directory / BOOKS_NAME

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Raises RegionUnreadable and RegionBroken."""
        path = directory / BOOKS_NAME
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RegionUnreadable(path, error) from error
        if len(content) != SLOT_FILE_BYTES:
            raise RegionBroken(path, f"has {len(content)} bytes, not {SLOT_FILE_BYTES}")
        magic, version, boot, device, inode, pid, _, started = _HEAD.unpack_from(content)
        if magic != MAGIC:
            raise RegionBroken(path, f"not a {BOOKS_NAME} file: it starts with {magic:#010x}")
        if version != VERSION:
            raise RegionBroken(path, f"layout {version}; this manager knows {VERSION}")
        rows = enumerate(_ROW.iter_unpack(content[_HEAD.size :]))
        taken = {slot: Process(row[0], row[2], row[3]) for slot, row in rows if row[0]}
        return cls(directory, boot, Identity(device, inode), Process(pid, started), taken)

    @staticmethod
    def of_another_boot(directory: Path, boot: bytes) -> bool:
        """Return whether no process of this boot can have had a slot; then no byte of what lies
        there is to be believed: what had not reached the disk when the machine stopped is zero or
        missing.
        """
        try:
            with (directory / BOOKS_NAME).open("rb") as file:
                head = file.read(_HEAD.size)
        except OSError:
            return False
        if len(head) < _HEAD.size:
            return not any(head)
        magic, _, written, *_ = _HEAD.unpack(head)
        return not any(head) or (magic == MAGIC and written != boot)

    @classmethod
    def begin(cls, directory: Path, boot: bytes, books: Identity) -> Self:
        """Write the table of new books, which no process has. Raises OSError, nothing changed."""
        table = cls(directory, boot, books, find(os.getpid()) or Process(0, 0))
        content = table._head().ljust(SLOT_FILE_BYTES, b"\0")
        try:
            table._write(content, 0)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            create(directory, TABLE, content)
        return table

    def take_over(self) -> None:
        """Record that we have the books now; for readers, so it may fail."""
        self.manager = find(os.getpid()) or Process(0, 0)
        with suppress(OSError):
            self._write(self._head(), 0)

    def put(self, slot: int, process: Process) -> None:
        """Record the owner of a slot. Raises OSError; then it has none."""
        row = _ROW.pack(process.pid, 0, process.start_time, process.stack)
        self.rows.pop(slot, None)
        self._write(row, _HEAD.size + slot * _ROW.size)
        self.rows[slot] = process

    def clear(self, slot: int) -> None:
        """Clear the row of a process that has ended. A row that stays does no harm."""
        if self.rows.pop(slot, None) is not None:
            with suppress(OSError):
                self._write(bytes(_ROW.size), _HEAD.size + slot * _ROW.size)

    def living(self) -> Iterator[Process]:
        """Yield the processes with a slot whose programs have not ended."""
        for process in self.rows.values():
            if runs_in(process.stack, process):
                yield process

    def _head(self) -> bytes:
        manager = self.manager
        return _HEAD.pack(
            MAGIC, VERSION, self.boot, *self.books, manager.pid, 0, manager.start_time
        )

    def _write(self, content: bytes, offset: int) -> None:
        """Write into a table that is there. Raises OSError: ENOENT and ESTALE for anything else."""
        descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_size != SLOT_FILE_BYTES:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            write_whole(descriptor, content, offset)
        finally:
            os.close(descriptor)

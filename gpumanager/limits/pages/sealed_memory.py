"""Memory that other processes may write and nobody can shrink, grow, or find on a disk.

A memfd with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL (memfd_create(2), fcntl(2)). It lives as
long as a process has it open or mapped. A process that has it open gives it back to a manager that
was restarted: /proc/<pid>/fd, for which the manager needs CAP_SYS_PTRACE.

Whatever a process has open is its own choice, so nothing of it is believed. A descriptor is first
held without being opened (O_PATH), which asks no file system; by the number of its mount, of which
no process has another, it is known to be a memfd; only then is it looked at and opened.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import islice
from typing import Final, NamedTuple

NAME: Final = "vcuda-books"
LINK: Final = f"/memfd:{NAME} (deleted)"
"""What the descriptor's link in /proc says."""

SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
MOST_LINKS: Final = 4096
"""Of one process that are looked at. A shim's descriptor is the first free one from 64."""

MOST_MEMFDS: Final = 64
"""Of this name. An honest process has one for each copy of the shim in it."""

MOST_MAPS: Final = 16384
"""Lines of one process's maps."""

_MAPPED: Final = f"{LINK}\n".encode()

_NOEXEC_SEAL: Final = 0x8
"""MFD_NOEXEC_SEAL, since Linux 6.3: can never be made executable."""


class Identity(NamedTuple):
    """Identifies a memfd in one boot of the machine."""

    device: int
    inode: int


def create(size: int) -> int:
    """Return a new one, all zeros. Raises OSError."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        descriptor = os.memfd_create(NAME, flags | _NOEXEC_SEAL)
    except OSError:  # a kernel before 6.3 knows no such flag
        descriptor = os.memfd_create(NAME, flags)
    try:
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def identity(descriptor: int) -> Identity:
    found = os.fstat(descriptor)
    return Identity(found.st_dev, found.st_ino)


def open_again(descriptor: int, *, writable: bool = True) -> int:
    """Return an open file description of its own: locks belong to it. Raises OSError."""
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
    return os.open(f"/proc/self/fd/{descriptor}", flags)


def find(pids: Iterator[int], wanted: Identity, size: int) -> int | None:
    """Take it back from the first of these processes that has it open, and lets us look."""
    for pid in pids:
        with suppress(OSError):  # it has ended, or may not be looked at
            for link in islice(_links(pid), MOST_MEMFDS):
                descriptor = _taken(link, wanted, size)
                if descriptor is not None:
                    return descriptor
    return None


def mapped(pid: int, wanted: Identity) -> bool:
    """Return whether a process has it in its memory, with or without a descriptor; also where that
    cannot be told, or not with bounded work."""
    inode = str(wanted.inode).encode()
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123
            for number, line in enumerate(file):
                words = line.split(maxsplit=5)
                if number == MOST_MAPS or (words[4] == inode and words[5:] == [_MAPPED]):
                    return True
    except PermissionError:
        return True
    except OSError:  # it has ended
        return False
    return False


def _links(pid: int) -> Iterator[str]:
    folder = f"/proc/{pid}/fd"
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number == MOST_LINKS:
                return
            with suppress(FileNotFoundError):
                if os.readlink(entry.path) == LINK:  # noqa: PTH115 - thousands of them
                    yield entry.path


def _taken(link: str, wanted: Identity, size: int) -> int | None:
    """Open what it refers to, if that is the memory we look for."""
    with suppress(FileNotFoundError), ExitStack() as held_open:
        held = os.open(link, os.O_PATH | os.O_CLOEXEC)
        held_open.callback(os.close, held)
        own = os.memfd_create("own", os.MFD_CLOEXEC)  # in the mount of all memfds of this kernel
        held_open.callback(os.close, own)
        if _mount(held) != _mount(own):
            return None
        found = os.fstat(held)
        if (found.st_dev, found.st_ino) != wanted or found.st_size != size:
            return None
        descriptor = open_again(held)
        if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS == SEALS:
            return descriptor
        os.close(descriptor)
    return None


def _mount(descriptor: int) -> bytes:
    with open(f"/proc/self/fdinfo/{descriptor}", "rb") as file:  # noqa: PTH123
        return next(line for line in file if line.startswith(b"mnt_id:"))

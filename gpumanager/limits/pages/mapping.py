"""A C struct in memory that the processes of a container have, too.

The layout is the compiler's (native/include/vcuda_region.h). Every word that changes under running
processes is stored by native/shim/core/region.c, with the order that its header specifies; words
are read through cffi, which loads an aligned word at once. A mapping that loses its pages (a disk
that fails, a truncated file) becomes zeros, not SIGBUS: native/shim/manager/mapping.h.

A file that is empty although it has its name lost its bytes when the machine lost power, and its
processes with them: it may be begun anew. Anything else that is not a region is an error for a
person to look at.
"""

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpumanager.errors import GpuManagerError
from vcuda_shim._shim import ffi, lib


class RegionUnreadable(GpuManagerError):
    """A region of an allocation cannot be opened."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: cannot be opened: {error.strerror}")


class RegionUnwritable(GpuManagerError):
    """A region cannot be changed now: the disk below it refuses."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path}: cannot be changed: its disk is full, read-only or broken")


class RegionBroken(GpuManagerError):
    """A file of an allocation is not what this manager writes."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"{path}: {cause}; delete the pod, then remove the directory {path.parent}"
        )


@dataclass(frozen=True, slots=True)
class StructLayout:
    """One kind of region, and the file by which it is found. mode: of that file. beyond: bytes that
    lie behind the struct."""

    name: str
    struct: str
    magic: int
    mode: int
    abi: int = lib.VCUDA_REGION_ABI
    beyond: int = 0

    @property
    def size(self) -> int:
        return ffi.sizeof(self.struct)

    @property
    def file_size(self) -> int:
        return self.size + self.beyond

    def check(self, words: Any, path: Path) -> None:
        """Raises RegionBroken unless `words` begins as every region of this layout does."""
        if words.magic != self.magic:
            raise RegionBroken(path, f"not a {self.name} file: it starts with {words.magic:#010x}")
        if words.abi != self.abi:
            raise RegionBroken(path, f"layout {words.abi}; this manager knows {self.abi}")
        if words.size != self.size:
            raise RegionBroken(path, f"says it has {words.size} bytes, not {self.size}")


class MappedStruct:
    """The struct at the beginning of a file, shared. Nothing may use `words` after close().

    resident: keep it in memory, as far as the system lets us.
    """

    def __init__(
        self, descriptor: int, layout: StructLayout, path: Path, *, resident: bool
    ) -> None:
        found = os.fstat(descriptor).st_size
        if found != layout.file_size:
            raise RegionBroken(path, f"has {found} bytes, not {layout.file_size}")
        self._address = lib.mapping_open(descriptor, found, resident)
        if self._address == ffi.NULL:
            raise RegionUnreadable(path, OSError(ffi.errno, os.strerror(ffi.errno)))
        self.words: Any = ffi.cast(f"{layout.struct} *", self._address)
        try:
            layout.check(self.words, path)
        except RegionBroken:
            self.close()
            raise

    @property
    def lost(self) -> bool:
        """Return whether its file failed: what is read now are zeros, or what we wrote since."""
        return bool(lib.mapping_lost(self._address))

    def renew(self, descriptor: int) -> bool:
        """Map another file in the same place, or the same again; pointers into it stay valid."""
        return bool(lib.mapping_renew(self._address, descriptor) == 0)

    def close(self) -> None:
        """Unmap it; safe to repeat."""
        if self._address != ffi.NULL:
            lib.mapping_close(self._address)
        self._address = self.words = ffi.NULL


def create(directory: Path, layout: StructLayout, content: bytes) -> None:
    """Write a file whole; it appears by one rename. Where there is no room nothing has changed.

    No byte of it is left out, so that none needs room when it is changed later.
    """
    temporary = directory / f".{layout.name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, layout.mode)
    try:
        os.fchmod(descriptor, layout.mode)
        write_whole(descriptor, content, 0)
        temporary.replace(directory / layout.name)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(descriptor)


def write_whole(descriptor: int, content: bytes, offset: int) -> None:
    """Write all of it. Raises OSError, also where the disk has room for a part only."""
    if os.pwrite(descriptor, content, offset) != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def lost_with_the_machine(path: Path) -> bool:
    """Return whether a file has a name but nothing in it: its bytes never reached the disk."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        return not any(file.read(16))
    return True


def open_region(path: Path, *, writable: bool) -> int:
    """Open the file of a region. Raises RegionUnreadable."""
    try:
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise RegionUnreadable(path, error) from error


def begin(words: Any, layout: StructLayout) -> None:
    """Write what every region starts with."""
    words.magic, words.abi, words.size = layout.magic, layout.abi, layout.size

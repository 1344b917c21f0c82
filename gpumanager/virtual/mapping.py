"""A file of an allocation as a C struct in memory.

The processes of the container map it too, so a file that exists is changed in place and never
truncated or replaced; it appears complete, by a rename. The layout is the compiler's
(native/include/vcuda_region.h). Every word that changes under running processes is stored by
native/shim/core/region.c, with the order that its header promises; words are read through cffi,
which loads an aligned word at once.

A file that is empty although it has its name lost its bytes when the machine lost power, and its
processes with them: it may be begun anew. Anything else that is not a region is an error for a
person to look at.
"""

import mmap
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpumanager.errors import GpuManagerError
from vcuda_shim._shim import ffi, lib


class RegionUnreadable(GpuManagerError):
    """A file of an allocation cannot be opened."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: cannot be opened: {error.strerror}")


class RegionBroken(GpuManagerError):
    """A file of an allocation is not what this manager writes."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"{path}: {cause}; delete the pod, then remove the directory {path.parent}"
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """One kind of file. mode: the configuration may be read by all, the books by root alone."""

    name: str
    struct: str
    magic: int
    mode: int

    @property
    def size(self) -> int:
        return ffi.sizeof(self.struct)


class Region:
    """One file of a directory, mapped. `words` is the struct; it must not be used after close()."""

    layout: Layout

    def __init__(self, directory: Path, *, writable: bool) -> None:
        self.directory = directory
        self._mapping = _map(self.path, self.layout.size, writable=writable)
        self.words: Any = ffi.from_buffer(f"{self.layout.struct} *", self._mapping)
        problem = self._problem()
        if problem:
            self.close()
            raise RegionBroken(self.path, problem)

    @property
    def path(self) -> Path:
        return self.directory / self.layout.name

    def _problem(self) -> str | None:
        words, layout = self.words, self.layout
        if words.magic != layout.magic:
            return f"not a {layout.name} file: it starts with {words.magic:#010x}"
        if words.abi != lib.VCUDA_REGION_ABI:
            return f"layout {words.abi}; this manager knows {lib.VCUDA_REGION_ABI}"
        if words.size != layout.size:
            return f"says it has {words.size} bytes, not {layout.size}"
        return None

    def close(self) -> None:
        ffi.release(self.words)
        self._mapping.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _map(path: Path, size: int, *, writable: bool) -> mmap.mmap:
    try:
        descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
    except OSError as error:
        raise RegionUnreadable(path, error) from error
    try:
        found = os.fstat(descriptor).st_size
        if found != size:
            raise RegionBroken(path, f"has {found} bytes, not {size}")
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        mapping = mmap.mmap(descriptor, size, access=access)
    finally:
        os.close(descriptor)
    mapping.madvise(mmap.MADV_RANDOM)  # or each page that is touched brings its neighbours along
    return mapping


def create(directory: Path, layout: Layout, head: bytes) -> None:
    """Write a region that begins with `head` and is zero after it; it appears by one rename."""
    temporary = directory / f".{layout.name}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, layout.mode)
    try:
        os.fchmod(descriptor, layout.mode)
        os.write(descriptor, head)
        os.ftruncate(descriptor, layout.size)
    finally:
        os.close(descriptor)
    temporary.replace(directory / layout.name)


def lost_with_the_machine(path: Path) -> bool:
    """Whether a file has a name but nothing in it: its bytes never reached the disk."""
    with suppress(FileNotFoundError), path.open("rb") as file:
        return not any(file.read(16))
    return True


def open_for(config: str, books: str, *, observer: bool) -> tuple[int, int]:
    """Descriptors of the two files, to hand over; an observer may not write. The caller closes.

    Opened anew for each process: a lock of theirs belongs to the open file description.
    """
    first = os.open(config, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return first, os.open(books, (os.O_RDONLY if observer else os.O_RDWR) | os.O_CLOEXEC)
    except OSError:
        os.close(first)
        raise


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def begin(words: Any, layout: Layout) -> None:
    """Write what every region starts with."""
    words.magic, words.abi, words.size = layout.magic, lib.VCUDA_REGION_ABI, layout.size

"""Lay out a driver directory: what goes where under `bin`, `lib` (32-bit) and `lib64`.

Found files in, a plan out; mirror.py carries it out. The plan's digest names the directory, so
that the same driver is published once and a new one never touches what is mounted.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from gpumanager.volume.find import Component

LAYOUT: Final = 1
"""Part of every digest: raise it when the same files are to be laid out differently."""

DIRECTORIES: Final = ("bin", "lib", "lib64")


@dataclass(frozen=True, slots=True)
class File:
    """A file to be put at `path` in the volume: the source, or a new file of its mode.

    size: bytes. stamp: changes whenever the content may have. content: the new file's.
    """

    path: PurePosixPath
    source: Path
    size: int
    stamp: str
    content: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Link:
    path: PurePosixPath
    target: str


Plan = tuple[File | Link, ...]


def digest(plan: Plan) -> str:
    """Return a name of the content: plans with one digest give the same directory."""
    lines = [f"layout {LAYOUT}"]
    for entry in plan:
        what = entry.target if isinstance(entry, Link) else f"{entry.size} {entry.stamp}"
        lines.append(f"{type(entry).__name__} {entry.path} {what}")
    return hashlib.sha256(os.fsencode("\n".join(lines))).hexdigest()[:16]


def lay_out(programs: Sequence[Component], libraries: Sequence[Component]) -> Plan:
    """Plan the driver's own files, and the links of ldconfig; of two that collide the first."""
    placed = [(PurePosixPath("lib64" if one.elf.is_64_bit else "lib"), one) for one in libraries]
    entries: list[File | Link] = [
        *(file_at(PurePosixPath("bin") / one.name, one.path) for one in programs),
        *(file_at(directory / one.name, one.path) for directory, one in placed),
        *(Link(where / name, one.name) for where, one in placed for name in link_names(one)),
    ]
    plan = {entry.path: entry for entry in reversed(entries)}
    return tuple(plan[path] for path in sorted(plan))


def file_at(path: PurePosixPath, source: Path) -> File:
    status = source.stat()
    return File(path, source, status.st_size, str(status.st_mtime_ns))


def link_names(library: Component) -> Iterator[str]:
    """Yield names by which a library is opened, beside its file's: its SONAME, the linker's name,
    and for NVIDIA's GLX the name of the vendor library for indirect rendering.
    """
    soname = library.elf.soname
    if soname is None or soname == library.name or "/" in soname:
        return
    yield soname
    yield re.sub(r"(\.\d+)+$", "", soname)
    if soname.startswith("libGLX_nvidia"):
        yield soname.replace("GLX_nvidia", "GLX_indirect", 1)

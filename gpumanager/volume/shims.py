"""Put the shims in place of libcuda and libnvidia-ml in a planned driver directory.

The names a program opens lead to the shims, and beside them stands the name under which each
shim needs the driver's own file. What programs are linked with has every function of the driver by
name and needs the shim under a name that is not its own:

    lib64/libvcuda-shim-<digest>.so
    lib64/libvcuda-link-<digest>.so
    lib64/libcuda.so.1             -> libvcuda-shim-<digest>.so
    lib64/libcuda.so               -> libvcuda-link-<digest>.so
    lib64/libvcuda-shim.so.1       -> libvcuda-shim-<digest>.so
    lib64/libvcuda-real.so.1       -> libcuda.so.555.58.02

The copies export nothing that the driver's own file does not: what dlsym finds is the driver's.
A file is named by its content and never rewritten: a running process maps the file it opened.
32-bit programs are not limited and keep the driver's own libraries.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from gpumanager.volume.driver import Driver
from gpumanager.volume.elf import read_elf
from gpumanager.volume.errors import DriverNotFound, ShimUnusable, SymbolsUnreadable
from gpumanager.volume.find import Component
from gpumanager.volume.host import Host
from gpumanager.volume.layout import File, Link, Plan
from gpumanager.volume.symbols import exported_names, keep_exports

LIB: Final = PurePosixPath("lib64")


@dataclass(frozen=True, slots=True)
class Shims:
    """The built shims: the files that take the place of libcuda.so.1 and libnvidia-ml.so.1.

    cuda_link, ml_link: what programs are linked with, in place of libcuda.so and libnvidia-ml.so.
    """

    cuda: Path
    ml: Path
    cuda_link: Path
    ml_link: Path


@dataclass(frozen=True, slots=True)
class _Role:
    """library: the name a linker uses. own, real: names by which the shim and the driver's file
    are needed. shim, link: begin the names of our files.
    """

    library: str
    own: str
    real: str
    shim: str
    link: str

    @property
    def soname(self) -> str:
        return f"{self.library}.1"


_CUDA: Final = _Role(
    "libcuda.so", "libvcuda-shim.so.1", "libvcuda-real.so.1", "libvcuda-shim", "libvcuda-link"
)
_ML: Final = _Role(
    "libnvidia-ml.so",
    "libvcuda-shim-ml.so.1",
    "libvcuda-real-ml.so.1",
    "libvcuda-shim-ml",
    "libvcuda-link-ml",
)


def put_shims(
    plan: Plan, libraries: Sequence[Component], shims: Shims, driver: Driver, host: Host
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan with the shims in it, and warnings; raises DriverNotFound, ShimUnusable."""
    entries = {entry.path: entry for entry in plan}
    warnings = []
    for role, shim, link in ((_CUDA, shims.cuda, shims.cuda_link), (_ML, shims.ml, shims.ml_link)):
        own = _own_library(role, libraries, driver, host)
        try:
            names = exported_names(own.path)
        except SymbolsUnreadable as error:
            names = None
            warnings.append(f"{error}; in shares, {role.library} has functions that it lacks")
        entries |= {entry.path: entry for entry in _replacement(role, shim, link, own, names)}
    return tuple(entries[path] for path in sorted(entries)), tuple(warnings)


def _own_library(
    role: _Role, libraries: Sequence[Component], driver: Driver, host: Host
) -> Component:
    """Return the driver's own file of this role; of several, the one of the driver's version."""
    found = [
        library
        for library in libraries
        if library.elf.is_64_bit and library.name.startswith(role.library)
    ]
    if not found:
        cause = f"no 64-bit {role.library} of driver {driver.version} among the volume's libraries"
        raise DriverNotFound(host.root, cause)
    exact = f"{role.library}.{driver.version}"
    return next((library for library in found if library.name == exact), found[0])


def _replacement(
    role: _Role, shim: Path, link: Path, own: Component, names: frozenset[str] | None
) -> Iterator[File | Link]:
    shim_file = _named_by_content(role.shim, shim, own, names)
    link_file = _named_by_content(role.link, link, own, names)
    yield from (shim_file, link_file)
    yield Link(LIB / role.soname, shim_file.path.name)
    yield Link(LIB / role.own, shim_file.path.name)
    yield Link(LIB / role.library, link_file.path.name)
    if own.name in (role.soname, role.library):
        status = own.path.stat()
        yield File(LIB / role.real, own.path, status.st_size, str(status.st_mtime_ns))
    else:
        yield Link(LIB / role.real, own.name)


def _named_by_content(
    prefix: str, source: Path, own: Component, names: frozenset[str] | None
) -> File:
    try:
        content = source.read_bytes()
    except OSError as error:
        raise ShimUnusable(source, f"cannot be read: {error.strerror}; is it built?") from error
    elf = read_elf(source)
    if elf is None:
        raise ShimUnusable(source, "not an ELF file; build it again")
    if (elf.bits, elf.machine) != (own.elf.bits, own.elf.machine):
        wanted = f"{own.elf.machine} as {own.path}"
        raise ShimUnusable(source, f"built for {elf.machine}, but the driver is {wanted}")
    if names is not None:
        content = keep_exports(content, names)
    stamp = hashlib.sha256(content).hexdigest()[:16]
    return File(LIB / f"{prefix}-{stamp}.so", source, len(content), stamp, content)

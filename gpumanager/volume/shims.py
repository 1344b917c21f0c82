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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from gpumanager.volume.driver import Driver
from gpumanager.volume.elf import read_elf
from gpumanager.volume.errors import DriverNotFound, ShimUnusable, SymbolsUnreadable
from gpumanager.volume.find import Component
from gpumanager.volume.host import Host
from gpumanager.volume.layout import File, Link, Plan, file_at
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


def put_shims(
    plan: Plan, libraries: Sequence[Component], shims: Shims, driver: Driver, host: Host
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan with the shims in it, and warnings; raises DriverNotFound, ShimUnusable."""
    entries = {entry.path: entry for entry in plan}
    warnings = []
    for library, suffix, shim, link in (
        ("libcuda.so", "", shims.cuda, shims.cuda_link),
        ("libnvidia-ml.so", "-ml", shims.ml, shims.ml_link),
    ):
        own = _own_library(library, libraries, driver, host)
        try:
            names = exported_names(own.path)
        except SymbolsUnreadable as error:
            names = None
            warnings.append(f"{error}; in shares, {library} has functions that it lacks")
        shim_file = _named_by_content(f"libvcuda-shim{suffix}", shim, own, names)
        link_file = _named_by_content(f"libvcuda-link{suffix}", link, own, names)
        real = LIB / f"libvcuda-real{suffix}.so.1"
        placed: list[File | Link] = [
            shim_file,
            link_file,
            Link(LIB / f"{library}.1", shim_file.path.name),
            Link(LIB / f"libvcuda-shim{suffix}.so.1", shim_file.path.name),
            Link(LIB / library, link_file.path.name),
            Link(real, own.name),
        ]
        if own.name in (f"{library}.1", library):
            placed[-1] = file_at(real, own.path)
        entries |= {entry.path: entry for entry in placed}
    return tuple(entries[path] for path in sorted(entries)), tuple(warnings)


def _own_library(
    name: str, libraries: Sequence[Component], driver: Driver, host: Host
) -> Component:
    """Return the driver's own file of this; of several, the one of the driver's version."""
    found = [one for one in libraries if one.elf.is_64_bit and one.name.startswith(name)]
    if not found:
        cause = f"no 64-bit {name} of driver {driver.version} among the volume's libraries"
        raise DriverNotFound(host.root, cause)
    return next((one for one in found if one.name == f"{name}.{driver.version}"), found[0])


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

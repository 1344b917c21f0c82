"""Find the driver's libraries and programs on a host.

Libraries by prefix among the names in `ld.so.cache`, programs in the usual directories. What is
not ELF is left out and said: a wrapper script would not work in the container. Two rules are the
original's: a GL front end counts only if it leads to NVIDIA's (others ship the same names), and
of libnvidia-tls the variant for old kernels is not wanted.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from gpumanager.volume.elf import Elf, read_elf
from gpumanager.volume.host import Host

PROGRAM_DIRECTORIES: Final = (
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/opt/bin",
    "/usr/local/nvidia/bin",
)

_FRONT_END: Final = re.compile(r"lib(EGL|GLESv1_CM|GLESv2|GL)\.so")
_NVIDIA_BEHIND: Final = re.compile(r"libnvidia-e?glcore\.so|libGLdispatch\.so")
_TLS: Final = re.compile(r"libnvidia-tls\.so")
_TLS_ABI: Final = (2, 3, 99)


@dataclass(frozen=True, slots=True)
class Component:
    """One ELF file of the driver. name: what it is called in the volume. path: where it lies."""

    name: str
    path: Path
    elf: Elf


@dataclass(frozen=True, slots=True)
class FoundLibrary:
    components: tuple[Component, ...]
    warnings: tuple[str, ...]


def find_libraries(host: Host, prefixes: Sequence[str]) -> FoundLibrary:
    """Find libraries by prefix, each file once, the dynamic linker's preferred first."""
    paths = dict[Path, None]()
    for entry in host.cache:
        if entry.bits is None or not entry.name.startswith(tuple(prefixes)):
            continue
        path = host.resolve(entry.path)
        if path is not None and path.is_file() and not is_stub(entry.path):
            paths[path] = None
    return _read((path.name, path) for path in paths)


def find_programs(host: Host, names: Iterable[str]) -> FoundLibrary:
    """Find the first executable of each name; a missing one is no warning, as with `which`."""
    found = list[tuple[str, Path]]()
    for name in names:
        for directory in PROGRAM_DIRECTORIES:
            path = host.resolve(f"{directory}/{name}")
            if path is not None and path.is_file() and path.stat().st_mode & 0o111:
                found.append((name, path))
                break
    return _read(found)


def is_stub(path: str) -> bool:
    """Return whether it is one of the toolkit's, to link against, with no driver inside."""
    return "stubs" in PurePosixPath(path).parts


def _read(files: Iterable[tuple[str, Path]]) -> FoundLibrary:
    components = []
    warnings = []
    for name, path in files:
        elf = read_elf(path)
        if elf is None:
            warnings.append(f"{path} is left out: not an ELF file")
        elif _is_wanted(path.name, elf):
            components.append(Component(name, path, elf))
    return FoundLibrary(tuple(components), tuple(warnings))


def _is_wanted(name: str, elf: Elf) -> bool:
    if _FRONT_END.match(name):
        return any(_NVIDIA_BEHIND.match(needed) for needed in elf.needed)
    if _TLS.match(name):
        return elf.abi in (None, _TLS_ABI)
    return True

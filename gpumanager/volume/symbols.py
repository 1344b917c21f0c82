"""The functions that a driver's library exports, and copies of ours that export no others.

A program may ask dlsym whether the driver has a function, and take another one if it has not. What
the driver lacks must be absent in our libraries, too: in their copies its symbol becomes weak and
undefined, which dlsym and linkers take for "not here". It loses its version as well, since ld looks
for the version of an undefined symbol among those that the file needs from others.

A copy without a function that the driver has would leave that function without a limit. Where it is
not sure which functions the driver has, nothing is taken away.

Files are 64-bit and little-endian, as those of x86-64 and aarch64 are.
"""

import re
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Final

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile

from gpumanager.volume.errors import SymbolsUnreadable

_SYMBOL: Final = struct.Struct("<IBBHQQ")
"""Elf64_Sym: name, binding and type, visibility, section, value, size."""

_UNDEFINED: Final = 0
_ABSOLUTE: Final = 0xFFF1
"""The section of a version's own symbol, which is no function."""

_WEAK: Final = 2 << 4
_TYPE: Final = 0xF
_UNVERSIONED: Final = struct.pack("<H", 1)


_C_LIBRARY: Final = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|gcc_s|stdc\+\+))\.so\.\d+")


@dataclass(frozen=True, slots=True)
class _Export:
    """at, version_at: where in the file its symbol lies, and the symbol's version if it has one."""

    name: str
    at: int
    version_at: int | None


def exported_names(library: Path) -> frozenset[str]:
    """Return what dlsym finds in a driver's file. Raises SymbolsUnreadable, for none as well."""
    try:
        with library.open("rb") as stream:
            names = frozenset(export.name for export in _exports(stream))
            needed = [tag.needed for tag in _dynamic(stream).iter_tags("DT_NEEDED")]
    except Exception as error:  # pyelftools raises whatever it meets in a damaged file
        raise SymbolsUnreadable(library, str(error)) from error
    if not names:
        raise SymbolsUnreadable(library, "there are none")
    if others := [name for name in needed if not _C_LIBRARY.fullmatch(name)]:
        raise SymbolsUnreadable(library, f"it needs {', '.join(others)}, which may have more")
    return names


def keep_exports(library: bytes, names: Collection[str]) -> bytes:
    """Return a copy of the library that exports no other names than these."""
    copy = bytearray(library)
    for export in _exports(BytesIO(library)):
        if export.name in names:
            continue
        name, kind, visibility, *_ = _SYMBOL.unpack_from(copy, export.at)
        absent = name, _WEAK | kind & _TYPE, visibility, _UNDEFINED, 0, 0
        _SYMBOL.pack_into(copy, export.at, *absent)
        if export.version_at is not None:
            copy[export.version_at : export.version_at + len(_UNVERSIONED)] = _UNVERSIONED
    return bytes(copy)


def _exports(stream: BinaryIO) -> Iterator[_Export]:
    table = _dynamic(stream)
    symbols, versions, strings = (
        table.get_table_offset(tag)[1] for tag in ("DT_SYMTAB", "DT_VERSYM", "DT_STRTAB")
    )
    names = _read(stream, strings, table.get_table_offset("DT_STRSZ")[0])
    content = _read(stream, symbols, table.num_symbols() * _SYMBOL.size)
    for index, (name, _, _, section, *_) in enumerate(_SYMBOL.iter_unpack(content)):
        if section not in (_UNDEFINED, _ABSOLUTE):
            text = names[name : names.index(b"\0", name)].decode()
            at = symbols + index * _SYMBOL.size
            yield _Export(text, at, versions and versions + index * len(_UNVERSIONED))


def _dynamic(stream: BinaryIO) -> Any:
    file: Any = ELFFile(stream)
    return next(one for one in file.iter_segments() if isinstance(one, DynamicSegment))


def _read(stream: BinaryIO, offset: int, size: int) -> bytes:
    stream.seek(offset)
    return stream.read(size)

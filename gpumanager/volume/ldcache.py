"""`/etc/ld.so.cache`: which libraries a machine has, as its dynamic linker knows them.

Three layouts exist (glibc, `sysdeps/generic/dl-cache.h`), all read here:

    old         "ld.so-1.7.0", count, entries of 12 bytes, texts counted from the end of the entries
    combined    old, then new at the next multiple of 8; texts of both follow the new entries
    new         "glibc-ld.so.cache1.1", header of 48 bytes, entries of 24 bytes, texts counted from
                the start of this header; a section of extensions may follow and is not needed here

Numbers are little-endian, as on every machine NVIDIA has a driver for. Nothing in the file is
believed: a count or an offset that leads outside of it makes the whole cache unreadable.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumanager.volume.errors import LdCacheUnreadable

OLD_MAGIC: Final = b"ld.so-1.7.0\0"
NEW_MAGIC: Final = b"glibc-ld.so.cache1.1"

X86_64: Final = 0x0303
I386: Final = 0x0003
X32: Final = 0x0803
AARCH64: Final = 0x0A03
"""Flags of an ELF library for glibc on these machines: kind in the low byte, machine above."""

FLAGS: Final = {"x86_64": X86_64, "aarch64": AARCH64, "i686": I386}
"""Flags by `platform.machine()`."""

_BITS: Final = {0x0300: 64, 0x0500: 64, 0x0A00: 64, 0x0000: 32, 0x0800: 32}
_COUNT: Final = struct.Struct("<I")
_OLD_ENTRY: Final = struct.Struct("<iII")
_NEW_HEADER: Final = struct.Struct("<20sIIB3xI12x")
_NEW_ENTRY: Final = struct.Struct("<iIIIQ")
_LITTLE_ENDIAN: Final = 2
_FOREIGN: Final = {1: "marked invalid by ldconfig", 3: "written for a big-endian machine"}


@dataclass(frozen=True, slots=True)
class LdEntry:
    """One line of `ldconfig -p`. name: the soname asked for. path: absolute. flags: as glibc's."""

    name: str
    path: str
    flags: int

    @property
    def bits(self) -> int | None:
        """64 or 32; None for what is not ELF or for a machine that has no NVIDIA driver."""
        return _BITS.get(self.flags & 0xFF00) if self.flags & 1 else None


def read_ldcache(path: Path) -> tuple[LdEntry, ...]:
    """Return entries in the dynamic linker's order of preference; raises LdCacheUnreadable."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LdCacheUnreadable(path, f"cannot be read: {error.strerror}") from error
    return parse_ldcache(content, path)


def parse_ldcache(content: bytes, source: Path) -> tuple[LdEntry, ...]:
    """Parse the bytes of a cache. source: for messages."""
    try:
        return tuple(_entries(content))
    except _Broken as error:
        raise LdCacheUnreadable(source, str(error)) from error


class _Broken(Exception):
    """Why the bytes are no cache."""


def _entries(content: bytes) -> Iterator[LdEntry]:
    if content.startswith(NEW_MAGIC):
        return _new_entries(content)
    if not content.startswith(OLD_MAGIC):
        raise _Broken("empty" if not content else "not an ld.so.cache")
    end = _end_of_table(content, len(OLD_MAGIC), _COUNT.size, _OLD_ENTRY.size)
    combined = content[-(-end // 8) * 8 :]
    if combined.startswith(NEW_MAGIC):
        return _new_entries(combined)
    return _table(content, len(OLD_MAGIC) + _COUNT.size, end, _OLD_ENTRY, texts=end)


def _new_entries(content: bytes) -> Iterator[LdEntry]:
    end = _end_of_table(content, len(NEW_MAGIC), _NEW_HEADER.size - len(NEW_MAGIC), _NEW_ENTRY.size)
    endianness = _NEW_HEADER.unpack_from(content)[3] & 3
    if endianness in _FOREIGN:
        raise _Broken(_FOREIGN[endianness])
    return _table(content, _NEW_HEADER.size, end, _NEW_ENTRY, texts=0)


def _end_of_table(content: bytes, count_at: int, rest_of_header: int, entry_size: int) -> int:
    """Return where the entries end, checked against the length of the file."""
    if len(content) < count_at + rest_of_header:
        raise _Broken("truncated within its header")
    (count,) = _COUNT.unpack_from(content, count_at)
    end: int = count_at + rest_of_header + count * entry_size
    if end > len(content):
        raise _Broken(f"truncated: {count} entries announced, {len(content)} bytes there")
    return end


def _table(
    content: bytes, start: int, end: int, entry: struct.Struct, *, texts: int
) -> Iterator[LdEntry]:
    for fields in entry.iter_unpack(content[start:end]):
        flags, name, path = fields[:3]
        yield LdEntry(_text(content, texts + name), _text(content, texts + path), flags)


def _text(content: bytes, start: int) -> str:
    end = content.find(b"\0", start)
    if start >= len(content) or end < 0:
        raise _Broken(f"a text at offset {start} lies outside of the {len(content)} bytes")
    return os.fsdecode(content[start:end])


def write_ldcache(entries: Iterable[LdEntry]) -> bytes:
    """Write a cache in the new layout, sorted as by ldconfig, so that ld.so itself can use it."""
    ordered = sorted(entries, key=lambda entry: (_rank(entry.name), entry.flags), reverse=True)
    texts = bytearray()
    table = bytearray()
    start = _NEW_HEADER.size + len(ordered) * _NEW_ENTRY.size
    for entry in ordered:
        offsets = []
        for text in (entry.name, entry.path):
            offsets.append(start + len(texts))
            texts += os.fsencode(text) + b"\0"
        table += _NEW_ENTRY.pack(entry.flags, *offsets, 0, 0)
    header = _NEW_HEADER.pack(NEW_MAGIC, len(ordered), len(texts), _LITTLE_ENDIAN, 0)
    return bytes(header + table + texts)


def _rank(name: str) -> list[tuple[int, int]]:
    """glibc's `_dl_cache_libcmp`: runs of digits count as numbers, and above every other byte."""
    pieces = re.findall(rb"\d+|\D", os.fsencode(name), re.DOTALL)
    return [(1, int(piece)) if piece.isdigit() else (0, piece[0]) for piece in pieces]

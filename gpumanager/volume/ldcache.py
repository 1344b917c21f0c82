"""`/etc/ld.so.cache`: which libraries a machine has, as its dynamic linker knows them.

glibc's layout (`sysdeps/generic/dl-cache.h`): "glibc-ld.so.cache1.1", header of 48 bytes, entries
of 24 bytes, texts counted from the start of this header; a section of extensions may follow and is
not needed here. Until glibc 2.32 a table for older linkers ("ld.so-1.7.0") stood before it.

Numbers are little-endian, as on every machine NVIDIA has a driver for. Nothing in the file is
believed: a count or an offset that leads outside of it makes the whole cache unreadable.
"""

import os
import re
import struct
from collections.abc import Iterable
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
    if content.startswith(OLD_MAGIC) and (start := content.find(NEW_MAGIC)) > 0:
        content = content[start:]
    if not content.startswith(NEW_MAGIC):
        raise LdCacheUnreadable(source, "not an ld.so.cache" if content else "empty")
    if len(content) < _NEW_HEADER.size:
        raise LdCacheUnreadable(source, "truncated within its header")
    _, count, _, flags, _ = _NEW_HEADER.unpack_from(content)
    end = _NEW_HEADER.size + count * _NEW_ENTRY.size
    if end > len(content):
        cause = f"truncated: {count} entries announced, {len(content)} bytes there"
        raise LdCacheUnreadable(source, cause)
    if flags & 3 in _FOREIGN:
        raise LdCacheUnreadable(source, _FOREIGN[flags & 3])

    def text(start: int) -> str:
        end = content.find(b"\0", start)
        if start >= len(content) or end < 0:
            cause = f"a text at offset {start} lies outside of the {len(content)} bytes"
            raise LdCacheUnreadable(source, cause)
        return os.fsdecode(content[start:end])

    table = _NEW_ENTRY.iter_unpack(content[_NEW_HEADER.size : end])
    return tuple(LdEntry(text(name), text(path), flags) for flags, name, path, *_ in table)


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

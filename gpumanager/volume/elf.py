"""What a file says of itself as an ELF object, so far as placing it needs.

Read by program headers alone: a stripped library has no section headers. Of libraries of a hundred
megabytes that is a few hundred bytes, which the agent needs before it can register; a parser of
everything else that such files hold would take it longer to load than to use. The layouts are those
of elf.h; what is found is compared with such a parser by the tests.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

_MAGIC: Final = b"\x7fELF"
_IDENTITY: Final = 16
"""Bytes: the magic, class, byte order, and padding."""

_BITS: Final = {1: 32, 2: 64}
_ORDERS: Final = {1: "<", 2: ">"}
_WIDE: Final = 64

_MACHINES: Final = {3: "EM_386", 21: "EM_PPC64", 40: "EM_ARM", 62: "EM_X86_64", 183: "EM_AARCH64"}

_PT_LOAD, _PT_DYNAMIC, _PT_NOTE = 1, 2, 4
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_SONAME, _DT_SYMBOLIC, _DT_FLAGS = 0, 1, 5, 14, 16, 30
_DF_SYMBOLIC: Final = 2
_NT_GNU_ABI_TAG: Final = 1

_MOST: Final = 1 << 20
"""Bytes of a segment; no real one that is read here comes near."""

_LONGEST: Final = 4096
"""Bytes of a library's name."""


@dataclass(frozen=True, slots=True)
class Elf:
    """bits: 32 or 64. machine: as in elf.h, `EM_X86_64`, or its number. soname: None for a program.

    symbolic: linked -Bsymbolic, so that its own calls cannot be interposed.
    abi: oldest kernel it runs on, (2, 3, 99), of its ABI note; None without one.
    """

    bits: int
    machine: str
    soname: str | None = None
    needed: tuple[str, ...] = ()
    symbolic: bool = False
    abi: tuple[int, int, int] | None = None

    @property
    def is_64_bit(self) -> bool:
        return self.bits == _WIDE


def read_elf(path: Path) -> Elf | None:
    """None for what is no ELF file: a wrapper script, a linker script, a truncated copy."""
    with suppress(OSError, ValueError, struct.error), path.open("rb") as stream:
        return _describe(_File(stream.fileno()))
    return None


class _Segment(NamedTuple):
    """A program header. The order of its fields is that of 64 bits; see `_File`."""

    type: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    memory: int
    align: int


class _File:
    """Its numbers, by its class and byte order. All methods raise ValueError or struct.error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        identity = self.read(0, _IDENTITY)
        if len(identity) < _IDENTITY or not identity.startswith(_MAGIC) or identity[4] not in _BITS:
            raise ValueError("not an ELF file")
        self.bits = _BITS[identity[4]]
        if identity[5] not in _ORDERS:
            raise ValueError("neither of the two byte orders")
        self.order = _ORDERS[identity[5]]
        self.word = "Q" if self.bits == _WIDE else "I"
        header = struct.Struct(f"{self.order}HHI{self.word * 3}IHHH")
        fields = header.unpack(self.read(_IDENTITY, header.size))
        _, machine, _, _, start, _, _, _, step, count = fields
        self.machine = _MACHINES.get(machine, str(machine))
        self.segments = tuple(self._segments(start, step, count))

    def read(self, offset: int, size: int) -> bytes:
        """So many bytes, or fewer at the end of the file."""
        if size > _MOST or offset >> 63:
            raise ValueError("longer than a part of a library can be")
        return os.pread(self._descriptor, size, offset)

    def string(self, offset: int) -> str:
        text, end, _ = self.read(offset, _LONGEST).partition(b"\0")
        if not end:
            raise ValueError("a name without an end")
        return text.decode()

    def offset(self, address: int) -> int:
        """Where in the file lies what is loaded at an address."""
        for one in self.segments:
            if one.type == _PT_LOAD and one.address <= address < one.address + one.size:
                return one.offset + address - one.address
        raise ValueError("an address that is not in the file")

    def _segments(self, start: int, step: int, count: int) -> Iterator[_Segment]:
        header = struct.Struct(self.order + ("IIQQQQQQ" if self.bits == _WIDE else "IIIIIIII"))
        for number in range(count):
            fields = header.unpack(self.read(start + number * step, header.size))
            if self.bits != _WIDE:  # flags come late there
                kind, offset, address, physical, size, memory, flags, align = fields
                fields = (kind, flags, offset, address, physical, size, memory, align)
            yield _Segment(*fields)


def _describe(file: _File) -> Elf:
    tags = [tag for one in file.segments if one.type == _PT_DYNAMIC for tag in _tags(file, one)]
    tables = [file.offset(value) for tag, value in tags if tag == _DT_STRTAB]

    def names(wanted: int) -> list[str]:
        return [file.string(tables[0] + value) for tag, value in tags if tag == wanted and tables]

    sonames = names(_DT_SONAME)
    return Elf(
        bits=file.bits,
        machine=file.machine,
        soname=sonames[0] if sonames else None,
        needed=tuple(names(_DT_NEEDED)),
        symbolic=any(_says_symbolic(*tag) for tag in tags),
        abi=_abi(file),
    )


def _tags(file: _File, dynamic: _Segment) -> Iterator[tuple[int, int]]:
    """The tag and value of each entry, up to the one that ends them."""
    entry = struct.Struct(file.order + file.word * 2)
    content = file.read(dynamic.offset, dynamic.size)
    for place in range(0, dynamic.size, entry.size):
        tag, value = entry.unpack_from(content, place)
        if tag == _DT_NULL:
            return
        yield tag, value


def _says_symbolic(tag: int, value: int) -> bool:
    return tag == _DT_SYMBOLIC or (tag == _DT_FLAGS and bool(value & _DF_SYMBOLIC))


def _abi(file: _File) -> tuple[int, int, int] | None:
    for segment in file.segments:
        for name, kind, content in _notes(file, segment) if segment.type == _PT_NOTE else ():
            if kind == _NT_GNU_ABI_TAG and name == b"GNU\0":
                _system, major, minor, tiny = struct.unpack_from(f"{file.order}4I", content)
                return (major, minor, tiny)
    return None


def _notes(file: _File, segment: _Segment) -> Iterator[tuple[bytes, int, bytes]]:
    """The name with its final 0, type and content of each."""
    whole = file.read(segment.offset, segment.size)
    up = partial(_round_up, to=8 if segment.align == 8 else 4)  # noqa: PLR2004  # else as of old
    place = 0
    while place < segment.size:
        name, size, kind = struct.unpack_from(f"{file.order}3I", whole, place)
        begin = place + up(12 + name)
        end = begin + size
        if end > len(whole):
            raise ValueError("a note longer than its segment")
        yield whole[place + 12 : place + 12 + name], kind, whole[begin:end]
        place = begin + up(size)


def _round_up(size: int, to: int) -> int:
    return -(-size // to) * to

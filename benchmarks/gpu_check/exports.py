"""What a shared library exports and needs, by its section headers; of ELF files for 64 bits, little
endian, as the driver's are. With the standard library alone.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = struct.Struct("<16xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_DYNAMIC: Final = struct.Struct("<qQ")
_DEFINED_VERSION: Final = struct.Struct("<HHHHIII")
_VERSION_NAME: Final = struct.Struct("<II")

_SHT_RELA, _SHT_DYNAMIC, _SHT_DYNSYM, _SHT_GNU_VERDEF = 4, 6, 11, 0x6FFFFFFD
_DT_SYMBOLIC, _DT_FLAGS, _DF_SYMBOLIC = 16, 30, 2
_R_X86_64_JUMP_SLOT: Final = 7
_KINDS: Final = {0: "NOTYPE", 1: "OBJECT", 2: "FUNC", 10: "IFUNC"}


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


@dataclass(frozen=True, slots=True)
class Exports:
    """symbols: name → kind. nodes: version nodes it defines. symbolic: its own calls cannot be
    interposed. own_slots: functions of its own that it calls by its PLT, where they can be.
    """

    symbols: dict[str, str]
    nodes: list[str]
    symbolic: bool
    own_slots: list[str]


def read_exports(path: Path) -> Exports:
    """Raises OSError, and ValueError and struct.error for what is no such file."""
    content = path.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path} is no 64-bit little-endian ELF file")
    header = _HEADER.unpack_from(content)
    start, size, count = header[5], header[10], header[11]
    sections = [
        _Section(*_SECTION.unpack_from(content, start + number * size)) for number in range(count)
    ]
    dynamic = [one for one in sections if one.type == _SHT_DYNSYM]
    if not dynamic:
        raise ValueError(f"{path} has no section of dynamic symbols")
    names = _names(content, sections, dynamic[0])
    symbols = [_SYMBOL.unpack_from(content, at) for at in _entries(dynamic[0], _SYMBOL)]
    called = [names(symbol[0]) for symbol in symbols]
    defined = {
        called[number]: _KINDS.get(symbol[1] & 0xF, str(symbol[1] & 0xF))
        for number, symbol in enumerate(symbols)
        if symbol[3] not in (0, 0xFFF1) and symbol[0]  # neither undefined nor a version node
    }
    return Exports(
        symbols=defined,
        nodes=_nodes(content, sections),
        symbolic=_symbolic(content, sections),
        own_slots=sorted(
            called[number] for number in _slots(content, sections) if called[number] in defined
        ),
    )


def _entries(section: _Section, layout: struct.Struct) -> range:
    return range(section.offset, section.offset + section.size, layout.size)


class _Names:
    def __init__(self, content: bytes, strings: _Section) -> None:
        self._content, self._start = content, strings.offset

    def __call__(self, offset: int) -> str:
        at = self._start + offset
        return self._content[at : self._content.index(b"\0", at)].decode()


def _names(content: bytes, sections: list[_Section], of: _Section) -> _Names:
    return _Names(content, sections[of.link])


def _nodes(content: bytes, sections: list[_Section]) -> list[str]:
    found = []
    for section in sections:
        if section.type != _SHT_GNU_VERDEF:
            continue
        names, at = _names(content, sections, section), section.offset
        for _ in range(section.info):
            row = _DEFINED_VERSION.unpack_from(content, at)
            found.append(names(_VERSION_NAME.unpack_from(content, at + row[5])[0]))
            at += row[6]
    return found


def _symbolic(content: bytes, sections: list[_Section]) -> bool:
    rows = [
        _DYNAMIC.unpack_from(content, at)
        for section in sections
        if section.type == _SHT_DYNAMIC
        for at in _entries(section, _DYNAMIC)
    ]
    return any(
        tag == _DT_SYMBOLIC or (tag == _DT_FLAGS and value & _DF_SYMBOLIC) for tag, value in rows
    )


def _slots(content: bytes, sections: list[_Section]) -> set[int]:
    """Numbers of the symbols that are called by the PLT."""
    rows = (
        _RELOCATION.unpack_from(content, at)
        for section in sections
        if section.type == _SHT_RELA
        for at in _entries(section, _RELOCATION)
    )
    return {info >> 32 for _, info, _ in rows if info & 0xFFFFFFFF == _R_X86_64_JUMP_SLOT}

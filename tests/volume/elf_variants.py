"""ELF files that the compiler at hand does not make: 32-bit ones, by hand, and ABI notes."""

import struct
from pathlib import Path

from tests.volume.driver_host import Parts

_PT_DYNAMIC = 2
_PT_LOAD = 1
_PT_NOTE = 4
_EM_386 = 3
_ET_DYN = 3
_DT_NULL, _DT_STRTAB, _DT_STRSZ, _DT_SONAME = 0, 5, 10, 14


def as_32_bit(soname: str) -> bytes:
    """A shared library for i386, of two program headers, a dynamic table and its texts."""
    texts = b"\0" + soname.encode() + b"\0"
    table_at = 52 + 2 * 32
    texts_at = table_at + 4 * 8
    size = texts_at + len(texts)
    tags = ((_DT_SONAME, 1), (_DT_STRTAB, texts_at), (_DT_STRSZ, len(texts)), (_DT_NULL, 0))
    table = b"".join(struct.pack("<II", *tag) for tag in tags)
    ident = b"\x7fELF\x01\x01\x01" + b"\0" * 9
    header = ident + struct.pack(
        "<HHIIIIIHHHHHH", _ET_DYN, _EM_386, 1, 0, 52, 0, 0, 52, 32, 2, 40, 0, 0
    )
    load = struct.pack("<8I", _PT_LOAD, 0, 0, 0, size, size, 4, 4096)
    dynamic = (_PT_DYNAMIC, table_at, table_at, table_at, len(table), len(table), 4, 4)
    return header + load + struct.pack("<8I", *dynamic) + table + texts


def with_abi_note(parts: Parts, name: str, abi: tuple[int, int, int]) -> Path:
    """A library whose note says the oldest kernel it runs on."""
    section = '.section .note.ABI-tag,\\"a\\",%note\\n.balign 4\\n'
    note = f'.long 4,16,1\\n.asciz \\"GNU\\"\\n.long 0,{abi[0]},{abi[1]},{abi[2]}\\n'
    return parts.library(name, f'__asm__("{section}{note}.text");')


def with_endless_note(content: bytes) -> bytes:
    """The file of `as_32_bit` with a note segment that claims to be longer than the file."""
    note = struct.pack("<III", 4, 0xFFFFFFF0, 1) + b"GNU\0"
    segment = (_PT_NOTE, len(content), 0, 0, 0xFFFFFFFF, 0, 4, 4)
    return content[:52] + struct.pack("<8I", *segment) + content[84:] + note

"""What a file says of itself as an ELF object, so far as placing it needs.

Read by segments alone: a stripped library has no section headers.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment

_WIDE: Final = 64
_DF_SYMBOLIC: Final = 2


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
    """None for what is no ELF file: a wrapper script, a linker script, a damaged copy."""
    try:
        with path.open("rb") as stream:
            return _describe(ELFFile(stream))
    except Exception:  # noqa: BLE001  # pyelftools raises whatever it meets in a damaged file
        return None


def _describe(file: Any) -> Elf:
    segments = list(file.iter_segments())
    tags = [tag for one in segments if isinstance(one, DynamicSegment) for tag in one.iter_tags()]
    notes = [note for one in segments if isinstance(one, NoteSegment) for note in one.iter_notes()]
    abis = [note["n_desc"] for note in notes if note["n_type"] == "NT_GNU_ABI_TAG"]
    return Elf(
        bits=file.elfclass,
        machine=str(file["e_machine"]),
        soname=next((tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"), None),
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        symbolic=any(_says_symbolic(tag.entry) for tag in tags),
        abi=(abis[0]["abi_major"], abis[0]["abi_minor"], abis[0]["abi_tiny"]) if abis else None,
    )


def _says_symbolic(tag: Any) -> bool:
    flags = tag.d_val if tag.d_tag == "DT_FLAGS" else 0
    return tag.d_tag == "DT_SYMBOLIC" or bool(flags & _DF_SYMBOLIC)

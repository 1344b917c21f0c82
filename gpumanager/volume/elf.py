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
    """Read it; None for what is no ELF file: a wrapper script, a linker script, a damaged copy."""
    try:
        with path.open("rb") as stream:
            file: Any = ELFFile(stream)
            segments = list(file.iter_segments())
            tags = [
                t for one in segments if isinstance(one, DynamicSegment) for t in one.iter_tags()
            ]
            flags = [(tag.entry.d_tag, tag.entry.d_val) for tag in tags]
            notes = [
                n for one in segments if isinstance(one, NoteSegment) for n in one.iter_notes()
            ]
            abi = next((n["n_desc"] for n in notes if n["n_type"] == "NT_GNU_ABI_TAG"), None)
            return Elf(
                bits=file.elfclass,
                machine=str(file["e_machine"]),
                soname=next((t.soname for t in tags if t.entry.d_tag == "DT_SONAME"), None),
                needed=tuple(t.needed for t in tags if t.entry.d_tag == "DT_NEEDED"),
                symbolic=any(
                    tag == "DT_SYMBOLIC" or (tag == "DT_FLAGS" and value & _DF_SYMBOLIC)
                    for tag, value in flags
                ),
                abi=(abi["abi_major"], abi["abi_minor"], abi["abi_tiny"]) if abi else None,
            )
    except Exception:  # noqa: BLE001  # pyelftools raises whatever it meets in a damaged file
        return None

"""What a file says of itself as an ELF object, so far as placing it needs.

Read by program headers alone where possible: a stripped library has no section headers.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment

_DF_SYMBOLIC: Final = 2
_WIDE: Final = 64


@dataclass(frozen=True, slots=True)
class Elf:
    """bits: 32 or 64. machine: as in elf.h, `EM_X86_64`. soname: None for a program.

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
    try:
        with path.open("rb") as stream:
            return _describe(ELFFile(stream))
    except Exception:  # noqa: BLE001  (the parser answers broken bytes with whatever it stumbles on)
        return None


def _describe(file: Any) -> Elf:
    segments = list(file.iter_segments())
    tags = [
        tag for part in segments if isinstance(part, DynamicSegment) for tag in part.iter_tags()
    ]
    sonames = [tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"]
    return Elf(
        bits=file.elfclass,
        machine=str(file["e_machine"]),
        soname=sonames[0] if sonames else None,
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        symbolic=any(_says_symbolic(tag.entry) for tag in tags),
        abi=_abi(segments),
    )


def _says_symbolic(entry: Any) -> bool:
    flags = entry.d_val & _DF_SYMBOLIC if entry.d_tag == "DT_FLAGS" else 0
    return entry.d_tag == "DT_SYMBOLIC" or bool(flags)


def _abi(segments: list[Any]) -> tuple[int, int, int] | None:
    for segment in segments:
        for note in segment.iter_notes() if isinstance(segment, NoteSegment) else ():
            if note["n_type"] == "NT_GNU_ABI_TAG" and note["n_name"] == "GNU":
                tag = note["n_desc"]
                return (tag["abi_major"], tag["abi_minor"], tag["abi_tiny"])
    return None

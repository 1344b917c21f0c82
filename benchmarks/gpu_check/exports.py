"""What a shared library exports, as the driver's do. Raises Lost for what is none."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from gpu_check.outcome import Lost
from gpumanager.volume.elf import read_elf

_R_X86_64_JUMP_SLOT: Final = 7
_NOT_DEFINED: Final = ("SHN_UNDEF", "SHN_ABS")
"""A symbol of another library, and a version node."""


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
    described = read_elf(path)
    try:
        with path.open("rb") as stream:
            symbols, nodes, called = _read(ELFFile(stream))
    except (ELFError, OSError, AttributeError) as error:
        raise Lost(f"{path} is no shared library that can be read: {error}") from error
    symbolic = described is not None and described.symbolic
    return Exports(symbols, nodes, symbolic, sorted(called & symbols.keys()))


def _read(file: Any) -> tuple[dict[str, str], list[str], set[str]]:
    table = file.get_section_by_name(".dynsym")
    names = [symbol.name for symbol in table.iter_symbols()]
    defined = {
        symbol.name: str(symbol["st_info"]["type"]).removeprefix("STT_")
        for symbol in table.iter_symbols()
        if symbol["st_shndx"] not in _NOT_DEFINED and symbol.name
    }
    versions, plt = map(file.get_section_by_name, (".gnu.version_d", ".rela.plt"))
    nodes = [aux.name for _, auxes in versions.iter_versions() for aux in auxes] if versions else []
    slots = plt.iter_relocations() if plt else ()
    called = {
        names[slot["r_info_sym"]] for slot in slots if slot["r_info_type"] == _R_X86_64_JUMP_SLOT
    }
    return defined, nodes, called

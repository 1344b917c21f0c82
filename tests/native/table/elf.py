"""What a shared library says of itself, for the tests about the files we build."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

DF_STATIC_TLS = 16


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        yield ELFFile(file)


def machine(path: Path) -> str:
    with opened(path) as elf:
        return str(elf["e_machine"])


def exported(path: Path) -> set[str]:
    """Symbols that others may use; a version node is none."""
    with opened(path) as elf:
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        undefined = ("SHN_UNDEF", "SHN_ABS")
        return {symbol.name for symbol in symbols if symbol["st_shndx"] not in undefined} - {""}


def imported(path: Path) -> set[str]:
    with opened(path) as elf:
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        return {symbol.name for symbol in symbols if symbol["st_shndx"] == "SHN_UNDEF"} - {""}


def first_bytes(path: Path, size: int) -> dict[str, bytes]:
    """With which instructions each exported function begins."""
    content = path.read_bytes()
    with opened(path) as elf:
        symbols = list(elf.get_section_by_name(".dynsym").iter_symbols())
        functions = [
            symbol
            for symbol in symbols
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
        ]
        text = elf.get_section_by_name(".text")
        offset = text["sh_offset"] - text["sh_addr"]
        return {
            one.name: content[one["st_value"] + offset : one["st_value"] + offset + size]
            for one in functions
        }


def relocated(path: Path) -> set[str]:
    """Symbols that the file's own code and tables refer to by name."""
    with opened(path) as elf:
        symbols = elf.get_section_by_name(".dynsym")
        tables = [elf.get_section_by_name(name) for name in (".rela.dyn", ".rela.plt")]
        entries = [entry for table in tables if table for entry in table.iter_relocations()]
        return {symbols.get_symbol(entry["r_info_sym"]).name for entry in entries} - {""}


def takes_static_tls(path: Path) -> bool:
    """Can it be loaded only while the loader has space in the threads' own blocks?"""
    static = {18: "R_X86_64_TPOFF64", 1030: "R_AARCH64_TLS_TPREL64"}
    with opened(path) as elf:
        tables = [elf.get_section_by_name(name) for name in (".rela.dyn", ".rela.plt")]
        entries = [entry for table in tables if table for entry in table.iter_relocations()]
        kinds = {entry["r_info_type"] for entry in entries}
    flags = dynamic(path, "DT_FLAGS")
    return bool(kinds & static.keys()) or any(flag & DF_STATIC_TLS for flag in flags)


def dynamic(path: Path, tag: str, value: str = "") -> list[Any]:
    """Every entry of this tag, its text under the name `value` if it has one."""
    with opened(path) as elf:
        tags = elf.get_section_by_name(".dynamic").iter_tags()
        entries = [entry for entry in tags if entry.entry.d_tag == tag]
        return [getattr(entry, value) if value else entry.entry.d_val for entry in entries]


def versions_needed(path: Path) -> set[str]:
    with opened(path) as elf:
        section = elf.get_section_by_name(".gnu.version_r")
        return {aux.name for _, auxes in section.iter_versions() for aux in auxes}


def versions_defined(path: Path) -> list[str]:
    with opened(path) as elf:
        section = elf.get_section_by_name(".gnu.version_d")
        if section is None:
            return []
        return [aux.name for _, auxes in section.iter_versions() for aux in auxes]


def newest_glibc(path: Path) -> tuple[int, ...]:
    names = {name for name in versions_needed(path) if name.startswith("GLIBC_")}
    return max(tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names)


def start_and_end_functions(path: Path) -> int:
    """How many functions run at load or at the end beyond the compiler's own one of each."""
    with opened(path) as elf:
        word = elf.elfclass // 8
        arrays = [elf.get_section_by_name(name) for name in (".init_array", ".fini_array")]
        return sum(array["sh_size"] // word - 1 for array in arrays if array is not None)

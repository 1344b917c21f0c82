"""The table of hooks, and that the two shims are exactly what it says."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from vcuda_shim import SHIM_CUDA, SHIM_NVML

TABLE = Path(__file__).resolve().parents[2] / "native" / "table"
SHIMS = pytest.mark.parametrize(
    ("shim", "name", "real"),
    [
        (SHIM_CUDA, "cuda", "libvcuda-real.so.1"),
        (SHIM_NVML, "nvml", "libvcuda-real-ml.so.1"),
    ],
)


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hook_table", TABLE / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["hook_table"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("alloc | cuMemAlloc_v2", "expected `kind | symbol | parameters`"),
        ("steal | cuMemAlloc_v2 | size_t bytes", "unknown kind 'steal'"),
        ("alloc | cu MemAlloc | size_t bytes", "not a function's name"),
        ("alloc | cuMemAlloc_v2 | size_t", "cannot read the parameters"),
        ("alloc | cuMemAlloc_v2 | size_t bytes,", "cannot read the parameters"),
        ("alloc | cuMemAlloc_v2 | size_t bytes, int bytes", "cannot read the parameters"),
        ("init | cuInit | unsigned int flags", "cuInit has a row already"),
    ],
)
def test_a_malformed_row_stops_the_build_and_says_where(
    generator: ModuleType, tmp_path: Path, line: str, complaint: str
) -> None:
    table = tmp_path / "cuda.hooks"
    table.write_text(f"# comment\ninit | cuInit | unsigned int flags\n{line}\n")

    with pytest.raises(SystemExit, match=f"{re.escape(str(table))}:3: .*{re.escape(complaint)}"):
        generator.parse_table(table)


def test_variants_are_of_the_family_that_get_proc_address_knows(generator: ModuleType) -> None:
    families = {row.symbol: row.family for row in generator.parse_table(TABLE / "cuda.hooks")}

    assert families["cuMemAlloc_v2"] == "cuMemAlloc"
    assert families["cuLaunchKernel_ptsz"] == "cuLaunchKernel"
    assert families["cuGetProcAddress_v2_ptsz"] == "cuGetProcAddress"


@SHIMS
def test_a_shim_exports_exactly_the_hooks_of_the_table(
    generator: ModuleType, shim: Path, name: str, real: str
) -> None:
    rows = generator.parse_table(TABLE / f"{name}.hooks")
    with shim.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        exported = {
            symbol.name
            for symbol in symbols
            if symbol["st_shndx"] not in ("SHN_UNDEF", "SHN_ABS") and symbol.name
        }

    assert exported == {row.symbol for row in rows if row.exported}


@SHIMS
def test_a_shim_stands_in_the_drivers_place_and_needs_the_driver(
    shim: Path, name: str, real: str
) -> None:
    with shim.open("rb") as file:
        tags = list(ELFFile(file).get_section_by_name(".dynamic").iter_tags())

    assert [tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"] == [shim.name]
    assert [tag.runpath for tag in tags if tag.entry.d_tag == "DT_RUNPATH"] == ["$ORIGIN"]
    needed = [tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"]
    assert needed[0] == real
    assert all(re.fullmatch(r"libc\.so\.6|ld-linux.*|libdl\.so\.2", lib) for lib in needed[1:])


@SHIMS
def test_a_shim_asks_for_no_symbol_newer_than_glibc_2_17(shim: Path, name: str, real: str) -> None:
    with shim.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_r")
        assert isinstance(section, GNUVerNeedSection)
        versions = {aux.name for _, auxes in section.iter_versions() for aux in auxes}

    numbers = [tuple(map(int, version.removeprefix("GLIBC_").split("."))) for version in versions]
    assert numbers
    assert max(numbers) <= (2, 17)


@SHIMS
def test_a_shim_runs_nothing_when_it_is_loaded(shim: Path, name: str, real: str) -> None:
    with shim.open("rb") as file:
        elf = ELFFile(file)
        word = elf.elfclass // 8
        arrays = [elf.get_section_by_name(array) for array in (".init_array", ".fini_array")]
        sizes = [array["sh_size"] for array in arrays if array is not None]

    assert all(size <= word for size in sizes)  # the compiler's own one, which does nothing here


def test_the_cuda_shim_carries_the_librarys_version_for_dlvsym() -> None:
    with SHIM_CUDA.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_d")
        versions = [aux.name for _, auxes in section.iter_versions() for aux in auxes]

    assert versions[0] == "libcuda.so.1"

"""The table of hooks, and that the shims and link libraries are exactly what it says."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.native.table import elf
from tests.native.table.hook_table import TABLE, hooked, load, unhooked
from vcuda_shim import LINK_CUDA, LINK_NVML, SHIM_CUDA, SHIM_NVML

FILES = pytest.mark.parametrize(
    ("file", "soname", "behind"),
    [
        (SHIM_CUDA, "libcuda.so.1", "libvcuda-real.so.1"),
        (SHIM_NVML, "libnvidia-ml.so.1", "libvcuda-real-ml.so.1"),
        (LINK_CUDA, "libcuda.so.1", "libvcuda-shim.so.1"),
        (LINK_NVML, "libnvidia-ml.so.1", "libvcuda-shim-ml.so.1"),
    ],
)
LEAVING = re.compile(r"_?exit|_Exit|quick_exit|abort|.*(sig|signal)(action|al|handler|procmask).*")
"""No library of ours ends the program or changes what its signals do."""


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    return load("generate")


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


@pytest.mark.parametrize(("shim", "name"), [(SHIM_CUDA, "cuda"), (SHIM_NVML, "nvml")])
def test_a_shim_exports_exactly_the_hooks_of_the_table(shim: Path, name: str) -> None:
    assert elf.exported(shim) == set(hooked(name))


@pytest.mark.parametrize(("library", "name"), [(LINK_CUDA, "cuda"), (LINK_NVML, "nvml")])
def test_a_link_library_exports_every_function_known(library: Path, name: str) -> None:
    known = {*hooked(name), *unhooked(name)}

    functions = {symbol for symbol in known if re.match("cu[A-Z]|nvml", symbol)}
    assert elf.exported(library) == functions


@FILES
def test_a_library_stands_in_the_drivers_place_and_needs_who_is_behind_it(
    file: Path, soname: str, behind: str
) -> None:
    assert elf.dynamic(file, "DT_SONAME", "soname") == [soname]
    assert elf.dynamic(file, "DT_RUNPATH", "runpath") == ["$ORIGIN"]
    needed = elf.dynamic(file, "DT_NEEDED", "needed")
    assert needed[0] == behind
    assert all(re.fullmatch(r"libc\.so\.6|ld-linux.*|libdl\.so\.2", lib) for lib in needed[1:])


@FILES
def test_a_library_asks_for_no_symbol_newer_than_glibc_2_17(
    file: Path, soname: str, behind: str
) -> None:
    assert (2,) < elf.newest_glibc(file) <= (2, 17)


@FILES
def test_a_library_takes_no_static_tls(file: Path, soname: str, behind: str) -> None:
    assert not elf.takes_static_tls(file)


@FILES
def test_a_library_runs_nothing_when_it_is_loaded(file: Path, soname: str, behind: str) -> None:
    assert elf.start_and_end_functions(file) <= 0


@FILES
def test_no_library_refers_to_its_own_exports_by_name(file: Path, soname: str, behind: str) -> None:
    """Copies of it lose the names that a driver lacks."""
    assert elf.relocated(file) & elf.exported(file) == set()
    assert elf.relocated(file)


@FILES
def test_a_library_never_ends_the_program_and_leaves_its_signals_alone(
    file: Path, soname: str, behind: str
) -> None:
    assert {name for name in elf.imported(file) if LEAVING.fullmatch(name)} == set()


def test_the_cuda_shim_carries_the_librarys_version_for_dlvsym() -> None:
    assert elf.versions_defined(SHIM_CUDA)[0] == "libcuda.so.1"


@pytest.mark.parametrize("library", [LINK_CUDA, LINK_NVML])
def test_what_is_linked_with_a_link_library_starts_over_any_driver(library: Path) -> None:
    assert elf.versions_defined(library) == []

"""The shims for 64-bit ARM: cross-compiled, and exactly those of x86-64 in all a linker sees."""

import re
from pathlib import Path

import pytest

from gpumanager.volume.symbols import keep_exports
from tests.native.table import elf
from vcuda_shim import LINK_CUDA, LINK_NVML, SHIM_CUDA, SHIM_NVML
from vcuda_shim.build import build

FILES = pytest.mark.parametrize(
    "native", [SHIM_CUDA, SHIM_NVML, LINK_CUDA, LINK_NVML], ids=lambda path: path.name
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("aarch64")
    build(out, ["shims-aarch64"])
    return out / "lib" / "shim-aarch64"


@FILES
def test_it_is_for_64_bit_arm(built: Path, native: Path) -> None:
    assert elf.machine(built / native.name) == "EM_AARCH64"


@FILES
def test_it_exports_what_the_one_for_x86_64_does(built: Path, native: Path) -> None:
    assert elf.exported(built / native.name) == elf.exported(native)
    assert elf.versions_defined(built / native.name) == elf.versions_defined(native)


@FILES
def test_it_stands_in_the_drivers_place_and_needs_who_is_behind_it(
    built: Path, native: Path
) -> None:
    file = built / native.name

    for tag, value in (("DT_SONAME", "soname"), ("DT_RUNPATH", "runpath")):
        assert elf.dynamic(file, tag, value) == elf.dynamic(native, tag, value)
    behind, *others = elf.dynamic(file, "DT_NEEDED", "needed")
    assert behind == elf.dynamic(native, "DT_NEEDED", "needed")[0]
    allowed = r"libc\.so\.6|ld-linux-aarch64\.so\.1|libdl\.so\.2|libpthread\.so\.0"
    assert all(re.fullmatch(allowed, name) for name in others)


@FILES
def test_a_copy_loses_the_exports_that_a_driver_lacks(
    built: Path, native: Path, tmp_path: Path
) -> None:
    library, copy = built / native.name, tmp_path / native.name
    some = sorted(elf.exported(library))[::2]

    copy.write_bytes(keep_exports(library.read_bytes(), some))

    assert elf.relocated(library) & elf.exported(library) == set()
    assert elf.exported(copy) == set(some)
    assert elf.imported(copy) == elf.imported(library) | elf.exported(library) - set(some)


@FILES
def test_it_asks_for_no_symbol_newer_than_glibc_2_17(built: Path, native: Path) -> None:
    assert elf.newest_glibc(built / native.name) == (2, 17)


@FILES
def test_it_takes_no_static_tls(built: Path, native: Path) -> None:
    assert not elf.takes_static_tls(built / native.name)


@FILES
def test_it_runs_nothing_when_it_is_loaded(built: Path, native: Path) -> None:
    assert elf.start_and_end_functions(built / native.name) <= 0

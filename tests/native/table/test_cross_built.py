"""The shims cross-compiled, for 64-bit ARM exactly those of x86-64 in all a linker sees.

What we export begins as a driver's functions do: with instructions that programs can move. UCX
patches the driver's functions for its cache of registered memory. It can move some instructions
out of the way, on x86-64: push, `sub $n, %rsp`, `mov %rsp, %rbp`, a register into the stack frame,
an immediate into a register, a comparison with an immediate in memory, a short conditional jump. On
aarch64: stp, cmp, mov, movk, ldr, adrp.
"""

import re
import struct
from pathlib import Path

import pytest

from gpumanager.volume.symbols import keep_exports
from tests.native.table import elf
from vcuda_shim import LINK_CUDA, LINK_NVML, SHIM_CUDA, SHIM_NVML
from vcuda_shim.build import build

FILES = pytest.mark.parametrize(
    "native", [SHIM_CUDA, SHIM_NVML, LINK_CUDA, LINK_NVML], ids=lambda path: path.name
)
FAR_JUMP = 12
"""Bytes that UCX patches on x86-64 if its own code is more than 2 GiB away, else 5."""

AARCH64_PATCH = 16

MOVABLE = re.compile(
    rb"A?[\x50-\x57]"  # push
    rb"|H\x83\xec.|H\x81\xec.{4}"  # sub $n, %rsp
    rb"|H\x89\xe5"  # mov %rsp, %rbp
    rb"|H\x89[\x44\x4c\x54\x5c\x64\x6c\x74\x7c]..|H\x89[\x84\x8c\x94\x9c\xa4\xac\xb4\xbc].{5}"
    rb"|[\xb8-\xbf].{4}"  # mov $n, %register
    rb"|\x81\x3d.{8}"  # cmpl $n, m(%rip)
    rb"|[\x70-\x7f].",
    re.DOTALL,
)
AARCH64_MOVABLE = (
    (0xFFC00000, 0xA8800000),  # stp, in three ways
    (0xFFC00000, 0xA9800000),
    (0xFFC00000, 0xA9000000),
    (0x7FC0001F, 0x6B00001F),  # cmp
    (0x7F800000, 0x72800000),  # movk
    (0x7FE0FFE0, 0x2A0003E0),  # mov, in three ways
    (0x7FFFFC00, 0x11000000),
    (0x7F800000, 0x52800000),
    (0xBFE00400, 0xB8400400),  # ldr, in two ways
    (0xBFC00000, 0xB9400000),
    (0x9F000000, 0x90000000),  # adrp
)


def movable(code: bytes, enough: int) -> bool:
    at = 0
    while at < enough:
        found = MOVABLE.match(code, at)
        if found is None:
            return False
        at = found.end()
    return True


def movable_on_aarch64(code: bytes) -> bool:
    return all(
        any(word & mask == value for mask, value in AARCH64_MOVABLE)
        for (word,) in struct.iter_unpack("<I", code)
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cross")
    build(out, ["shims-aarch64", "shims-x86_64"])
    return out / "lib"


@pytest.fixture
def aarch64(built: Path) -> Path:
    return built / "shim-aarch64"


@FILES
def test_it_is_for_64_bit_arm(aarch64: Path, native: Path) -> None:
    assert elf.machine(aarch64 / native.name) == "EM_AARCH64"


@FILES
def test_it_exports_what_the_one_for_x86_64_does(aarch64: Path, native: Path) -> None:
    assert elf.exported(aarch64 / native.name) == elf.exported(native)
    assert elf.versions_defined(aarch64 / native.name) == elf.versions_defined(native)


@FILES
def test_it_stands_in_the_drivers_place_and_needs_who_is_behind_it(
    aarch64: Path, native: Path
) -> None:
    file = aarch64 / native.name

    for tag, value in (("DT_SONAME", "soname"), ("DT_RUNPATH", "runpath")):
        assert elf.dynamic(file, tag, value) == elf.dynamic(native, tag, value)
    behind, *others = elf.dynamic(file, "DT_NEEDED", "needed")
    assert behind == elf.dynamic(native, "DT_NEEDED", "needed")[0]
    allowed = r"libc\.so\.6|ld-linux-aarch64\.so\.1|libdl\.so\.2|libpthread\.so\.0"
    assert all(re.fullmatch(allowed, name) for name in others)


@FILES
def test_a_copy_loses_the_exports_that_a_driver_lacks(
    aarch64: Path, native: Path, tmp_path: Path
) -> None:
    library, copy = aarch64 / native.name, tmp_path / native.name
    some = sorted(elf.exported(library))[::2]

    copy.write_bytes(keep_exports(library.read_bytes(), some))

    assert elf.relocated(library) & elf.exported(library) == set()
    assert elf.exported(copy) == set(some)
    assert elf.imported(copy) == elf.imported(library) | elf.exported(library) - set(some)


@FILES
def test_it_asks_for_no_symbol_newer_than_glibc_2_17(aarch64: Path, native: Path) -> None:
    assert elf.newest_glibc(aarch64 / native.name) == (2, 17)


@FILES
def test_it_takes_no_static_tls(aarch64: Path, native: Path) -> None:
    assert not elf.takes_static_tls(aarch64 / native.name)


@FILES
def test_it_runs_nothing_when_it_is_loaded(aarch64: Path, native: Path) -> None:
    assert elf.start_and_end_functions(aarch64 / native.name) <= 0


@pytest.mark.parametrize("folder", ["shim", "shim-x86_64"])
@FILES
def test_every_export_begins_with_instructions_that_a_patch_can_move(
    built: Path, native: Path, folder: str
) -> None:
    file = native if folder == "shim" else built / folder / native.name
    codes = elf.first_bytes(file, 2 * FAR_JUMP)

    assert set(codes) == elf.exported(file)
    assert {name: code.hex() for name, code in codes.items() if not movable(code, FAR_JUMP)} == {}


@FILES
def test_every_export_for_aarch64_begins_so(aarch64: Path, native: Path) -> None:
    codes = elf.first_bytes(aarch64 / native.name, AARCH64_PATCH)

    assert len(codes) > 10
    assert {name: code.hex() for name, code in codes.items() if not movable_on_aarch64(code)} == {}

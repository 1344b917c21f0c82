"""ELF files: what is read of them, and that nothing else breaks the reader."""

import platform
from pathlib import Path

import pytest
from driver_host import Parts
from elf_variants import as_32_bit, with_abi_note, with_endless_note
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumanager.volume.elf import Elf, read_elf

pytest_plugins = ["volume_fixtures"]

MACHINE = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[platform.machine()]


def test_a_library_tells_its_class_machine_soname_and_binding(parts: Parts) -> None:
    assert read_elf(parts.cuda()) == Elf(64, MACHINE, soname="libcuda.so.1", symbolic=True)


def test_a_library_tells_what_it_needs(parts: Parts) -> None:
    shim = read_elf(parts.shims().cuda)

    assert shim is not None
    assert shim.needed == ("libvcuda-real.so.1",)
    assert not shim.symbolic


def test_a_program_has_no_soname(parts: Parts) -> None:
    assert read_elf(parts.program("nvidia-smi")) == Elf(64, MACHINE)


def test_an_abi_note_tells_the_oldest_kernel(parts: Parts) -> None:
    elf = read_elf(with_abi_note(parts, "libnvidia-tls.so.1", (2, 3, 99)))

    assert elf is not None
    assert elf.abi == (2, 3, 99)


def test_a_32_bit_library_is_known_as_such(parts: Parts, tmp_path: Path) -> None:
    path = tmp_path / "libcuda.so.1"
    path.write_bytes(as_32_bit("libcuda.so.1"))

    assert read_elf(path) == Elf(32, "EM_386", soname="libcuda.so.1")


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\nexec nvidia-smi.real\n", b"\x7fELF", b"\x7fELF\x02\x01\x01"]
)
def test_what_is_not_elf_is_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)

    assert read_elf(path) is None


def test_a_file_that_cannot_be_opened_is_none(tmp_path: Path) -> None:
    assert read_elf(tmp_path / "nothing") is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=8)), max_size=9))
def test_broken_elf_files_never_break_the_reader(
    tmp_path: Path, changes: list[tuple[int, bytes]]
) -> None:
    broken = bytearray(as_32_bit("libcuda.so.1"))
    for place, value in changes:
        start = place % len(broken)
        broken[start : start + len(value)] = value
    path = tmp_path / "broken"
    path.write_bytes(broken)

    elf = read_elf(path)

    assert elf is None or elf.bits in (32, 64)


def test_a_note_longer_than_its_file_is_survived(tmp_path: Path) -> None:
    path = tmp_path / "endless"
    path.write_bytes(with_endless_note(as_32_bit("libcuda.so.1")))

    assert read_elf(path) is None

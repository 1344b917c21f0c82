"""ELF files: what is read of them, and that nothing else breaks the reader."""

import platform
import sys
import sysconfig
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpumanager.volume.elf import Elf, read_elf
from tests.volume.driver_host import Parts
from tests.volume.elf_variants import as_32_bit, with_abi_note, with_endless_note

pytest_plugins = ["tests.volume.volume_fixtures"]

MACHINE = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}[platform.machine()]


LIBRARIES = (Path("/lib"), Path("/usr/lib"), Path("/lib64"))
ENOUGH = 150


def test_the_hosts_own_files_say_what_a_whole_parser_reads_of_them() -> None:
    files = tuple(islice(hosts_files(), ENOUGH))

    assert len(files) > 10
    for path in files:
        assert (path, read_elf(path)) == (path, parsed(path))


def hosts_files() -> Iterator[Path]:
    """Python itself, its extensions, and what libraries the host has."""
    yield Path(sys.executable)
    directory = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    roots = (directory, *LIBRARIES)
    yield from (path for path in chain(*(root.rglob("*.so*") for root in roots)) if is_elf(path))


def is_elf(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(4) == b"\x7fELF"


def parsed(path: Path) -> Elf:
    """By pyelftools."""
    with path.open("rb") as stream:
        file: Any = ELFFile(stream)
        segments = list(file.iter_segments())
        tags = [t for s in segments if isinstance(s, DynamicSegment) for t in s.iter_tags()]
        sonames = [tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"]
        flags = [tag.entry.d_val for tag in tags if tag.entry.d_tag == "DT_FLAGS"]
        notes = [n for s in segments if isinstance(s, NoteSegment) for n in s.iter_notes()]
        abis = [n["n_desc"] for n in notes if n["n_type"] == "NT_GNU_ABI_TAG"]
        return Elf(
            bits=file.elfclass,
            machine=file["e_machine"],
            soname=sonames[0] if sonames else None,
            needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
            symbolic=any(tag.entry.d_tag == "DT_SYMBOLIC" for tag in tags)
            or any(word & 2 for word in flags),
            abi=tuple(abis[0][f"abi_{part}"] for part in ("major", "minor", "tiny"))
            if abis
            else None,
        )


def test_a_library_tells_what_it_needs(parts: Parts) -> None:
    shim = read_elf(parts.shims().cuda)

    assert shim is not None
    assert shim.needed == ("libvcuda-real.so.1",)
    assert not shim.symbolic


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Parts.cuda, Elf(64, MACHINE, soname="libcuda.so.1", symbolic=True)),
        (lambda parts: parts.program("nvidia-smi"), Elf(64, MACHINE)),
        (lambda parts: parts.folder / "32", Elf(32, "EM_386", soname="libcuda.so.1")),
    ],
    ids=["library", "program", "32-bit library"],
)
def test_a_file_tells_its_class_machine_soname_and_binding(
    parts: Parts, make: Callable[[Parts], Path], told: Elf
) -> None:
    (parts.folder / "32").write_bytes(as_32_bit("libcuda.so.1"))

    assert read_elf(make(parts)) == told


def test_an_abi_note_tells_the_oldest_kernel(parts: Parts) -> None:
    elf = read_elf(with_abi_note(parts, "libnvidia-tls.so.1", (2, 3, 99)))

    assert elf is not None
    assert elf.abi == (2, 3, 99)


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/sh\nexec nvidia-smi.real\n", b"\x7fELF", b"\x7fELF\x02\x01\x01"]
)
def test_what_is_not_elf_or_not_there_is_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)

    assert read_elf(path) is None
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

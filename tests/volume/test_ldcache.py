"""ld.so.cache: the layout, broken bytes, and agreement with the real ldconfig."""

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumanager.volume.errors import LdCacheUnreadable
from gpumanager.volume.ldcache import (
    AARCH64,
    I386,
    NEW_MAGIC,
    OLD_MAGIC,
    X32,
    X86_64,
    LdEntry,
    parse_ldcache,
    read_ldcache,
    write_ldcache,
)
from tests.volume.driver_host import LIBS, Parts

pytest_plugins = ["tests.volume.volume_fixtures"]

HERE = Path("ld.so.cache")
CUDA = LdEntry("libcuda.so.1", f"{LIBS}/libcuda.so.1", X86_64)
CUDA32 = LdEntry("libcuda.so.1", "/usr/lib/i386-linux-gnu/libcuda.so.1", I386)


@pytest.mark.parametrize(
    ("flags", "bits"),
    [(X86_64, 64), (AARCH64, 64), (0x0503, 64), (I386, 32), (X32, 32), (0x0903, None), (2, None)],
)
def test_the_flags_of_an_entry_say_how_wide_the_library_is(flags: int, bits: int | None) -> None:
    assert LdEntry("libcuda.so.1", "/lib/libcuda.so.1", flags).bits == bits


def test_a_written_cache_reads_back() -> None:
    assert parse_ldcache(write_ldcache([CUDA32, CUDA]), HERE) == (CUDA, CUDA32)


def test_of_a_combined_cache_the_new_part_counts() -> None:
    head = OLD_MAGIC + struct.pack("<IiII", 1, X86_64, 0, 0)
    combined = head + b"\0" * (-len(head) % 8) + write_ldcache([CUDA, CUDA32])

    assert parse_ldcache(combined, HERE) == (CUDA, CUDA32)


@pytest.mark.parametrize("endianness", [0, 2])
def test_flags_and_extensions_of_newer_glibc_do_not_disturb(endianness: int) -> None:
    content = bytearray(write_ldcache([CUDA]))
    content[28] = endianness
    content[32:36] = struct.pack("<I", len(content))
    content += struct.pack("<II", 0xEAA42174, 0)

    assert parse_ldcache(bytes(content), HERE) == (CUDA,)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "empty"),
        (b"\x7fELF\x02\x01\x01", "not an ld.so.cache"),
        (NEW_MAGIC, "truncated within its header"),
        (OLD_MAGIC + b"\1", "not an ld.so.cache"),
        (write_ldcache([CUDA])[:60], "truncated: 1 entries announced, 60 bytes there"),
        (write_ldcache([CUDA])[:-1], "lies outside"),
        (NEW_MAGIC + b"\xff" * 28, "truncated: 4294967295 entries announced, 48 bytes there"),
        (NEW_MAGIC + b"\0" * 8 + b"\3" + b"\0" * 19, "written for a big-endian machine"),
    ],
)
def test_what_is_no_cache_is_refused_with_file_and_cause(content: bytes, cause: str) -> None:
    with pytest.raises(LdCacheUnreadable, match=rf"^ld\.so\.cache: .*{re.escape(cause)}"):
        parse_ldcache(content, HERE)


def test_a_missing_cache_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(LdCacheUnreadable, match=r"ld\.so\.cache: cannot be read: No such file"):
        read_ldcache(tmp_path / "ld.so.cache")


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
ENTRIES = st.lists(st.builds(LdEntry, NAMES, NAMES, st.integers(-(2**31), 2**31 - 1)))


@given(ENTRIES)
def test_any_entries_survive_being_written_and_read(entries: list[LdEntry]) -> None:
    read = parse_ldcache(write_ldcache(entries), HERE)

    assert sorted(read, key=repr) == sorted(entries, key=repr)


@given(
    st.sampled_from([write_ldcache([CUDA, CUDA32]), OLD_MAGIC + write_ldcache([CUDA])]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=8),
    st.integers(0, 200),
)
def test_broken_bytes_are_read_or_refused_but_never_crash(
    content: bytes, changes: list[tuple[int, int]], length: int
) -> None:
    broken = bytearray(content)
    for place, value in changes:
        broken[place % len(broken)] = value

    try:
        entries = parse_ldcache(bytes(broken[:length]), HERE)
    except LdCacheUnreadable as error:
        assert error.cause  # noqa: PT017  (either outcome is right)
    else:
        assert all(isinstance(entry, LdEntry) for entry in entries)


@given(st.binary(max_size=300), st.sampled_from([b"", OLD_MAGIC, NEW_MAGIC]))
def test_random_bytes_are_read_or_refused_but_never_crash(tail: bytes, magic: bytes) -> None:
    try:
        entries = parse_ldcache(magic + tail, HERE)
    except LdCacheUnreadable as error:
        assert error.source == HERE  # noqa: PT017
    else:
        assert magic
        assert len(entries) < len(tail)


@pytest.fixture
def ldconfig() -> str:
    found = shutil.which("ldconfig", path="/sbin:/usr/sbin:/usr/bin:/bin")
    if found is None:
        pytest.skip("ldconfig is not installed: its output was not compared")
    return found


def printed(ldconfig: str, cache: Path) -> list[tuple[str, str]]:
    """Name and path of each line of `ldconfig -p`."""
    command = [ldconfig, "-p", "-C", str(cache)]
    text = subprocess.run(command, check=True, timeout=600, capture_output=True, text=True).stdout
    return re.findall(r"^\t(\S+) \(.*\) => (\S+)$", text, re.MULTILINE)


def configured(ldconfig: str, root: Path, libraries: list[Path], layout: str) -> Path:
    """The cache that ldconfig writes for a root with these libraries."""
    (root / "lib").mkdir()
    (root / "etc").mkdir()
    (root / "etc" / "ld.so.conf").write_text("/lib\n")
    for library in libraries:
        shutil.copy(library, root / "lib")
    command = [ldconfig, "-r", str(root), "-C", "/etc/ld.so.cache", "-c", layout]
    subprocess.run(command, check=True, timeout=600, capture_output=True)
    return root / "etc" / "ld.so.cache"


@pytest.mark.parametrize("layout", ["new", "compat"])
def test_what_ldconfig_writes_is_read_as_it_prints_it(
    ldconfig: str, layout: str, tmp_path: Path, parts: Parts
) -> None:
    libraries = [parts.cuda(), parts.ml(), parts.cuda("60.1"), parts.ml("9.9")]
    cache = configured(ldconfig, tmp_path, libraries, layout)

    entries = read_ldcache(cache)

    assert [(entry.name, entry.path) for entry in entries] == printed(ldconfig, cache)
    assert "/lib/libcuda.so.1" in {entry.path for entry in entries}
    assert {entry.bits for entry in entries} == {64}


def test_what_is_written_here_is_in_ldconfigs_own_order(
    ldconfig: str, tmp_path: Path, parts: Parts
) -> None:
    names = ["libz.so.1", "libb.so.10", "libb.so.9", "libb.so", "lib10.so", "liba.so", "libb-2.so"]
    libraries = [parts.library(name, soname=name) for name in names]
    expected = read_ldcache(configured(ldconfig, tmp_path, libraries, "new"))

    content = write_ldcache(sorted(expected, key=lambda entry: entry.name))

    assert parse_ldcache(content, HERE) == expected
    assert {entry.name for entry in expected} == set(names)


def test_ldconfig_prints_what_is_written_here(ldconfig: str, tmp_path: Path) -> None:
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(write_ldcache([CUDA32, CUDA]))

    assert printed(ldconfig, cache) == [(CUDA.name, CUDA.path), (CUDA32.name, CUDA32.path)]

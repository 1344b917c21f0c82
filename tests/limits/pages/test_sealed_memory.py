"""Memory that nobody can shrink, and taking it back from processes that may be anything."""

import ctypes
import os
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpumanager.limits.pages import sealed_memory
from gpumanager.limits.pages.sealed_memory import (
    MOST_MEMFDS,
    create,
    find,
    identity,
    mapped,
)

SIZE = 1 << 16
NOBODY = 65534
PR_SET_DUMPABLE = 4
DAC_READ_SEARCH, SYS_PTRACE = 1 << 2, 1 << 19


@contextmanager
def process(act: Callable[[], object]) -> Iterator[int]:
    """Another process that has done this and stays. What is open here is open there, too."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            act()
            os.write(tell, b"x")
            signal.pause()
        finally:
            os._exit(1)
    try:
        os.close(tell)
        assert os.read(ready, 1) == b"x"
        yield pid
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(ready)


def become_nobody() -> None:
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # as a program is that was begun by nobody


def found_with(capabilities: int, pid: int, wanted: int) -> int:
    """By root with these capabilities alone. 0: given back; 1: not."""
    child = os.fork()
    if child == 0:
        header, low = struct.pack("<Ii", 0x20080522, 0), capabilities
        ctypes.CDLL(None).capset(header, struct.pack("<6I", low, low, 0, 0, 0, 0))
        found = find(iter([pid]), identity(wanted), SIZE)
        os._exit(int(found is None))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(
    ("capabilities", "answer"),
    [(DAC_READ_SEARCH | SYS_PTRACE, 0), (DAC_READ_SEARCH, 1), (SYS_PTRACE, 1), (0, 1)],
)
def test_two_capabilities_get_the_memory_back_from_a_process_of_another_user(
    capabilities: int, answer: int
) -> None:
    wanted = create(SIZE)
    with process(become_nobody) as pid:
        assert found_with(capabilities, pid, wanted) == answer
    os.close(wanted)


def test_what_only_looks_like_it_is_not_taken(tmp_path: Path) -> None:
    """Another memfd of that name, one that can be shrunk, a file, a pipe."""
    wanted = create(SIZE)
    fakes = [
        create(SIZE),
        os.memfd_create(sealed_memory.NAME),
        os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT),
        *os.pipe(),
    ]
    os.ftruncate(fakes[1], SIZE)

    def only_fakes() -> None:
        os.close(wanted)

    with process(only_fakes) as pid:
        assert find(iter([pid]), identity(wanted), SIZE) is None
        assert find(iter([pid]), identity(fakes[1]), SIZE) is None, "not sealed"
        assert find(iter([pid]), identity(fakes[0]), 2 * SIZE) is None, "another size"
        real = find(iter([pid]), identity(fakes[0]), SIZE)
    assert real is not None
    for descriptor in (wanted, real, *fakes):
        os.close(descriptor)


def test_many_of_its_name_are_not_all_looked_at() -> None:
    wanted = create(SIZE)
    others = [create(SIZE) for _ in range(MOST_MEMFDS)]

    def hide() -> None:
        os.dup2(wanted, 900)
        os.close(wanted)

    with process(hide) as pid:
        assert find(iter([pid]), identity(wanted), SIZE) is None
    for descriptor in (wanted, *others):
        os.close(descriptor)


def test_a_process_that_has_it_in_memory_alone_is_told_from_one_that_has_not() -> None:
    wanted, other = create(SIZE), create(SIZE)

    def map_and_close() -> None:
        ctypes.CDLL(None).mmap(None, ctypes.c_size_t(SIZE), 1, 1, wanted, ctypes.c_long(0))
        os.close(wanted)

    with process(map_and_close) as pid:
        assert find(iter([pid]), identity(wanted), SIZE) is None
        assert mapped(pid, identity(wanted))
        assert not mapped(pid, identity(other))
    os.close(wanted)
    os.close(other)

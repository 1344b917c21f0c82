"""A container's books in a file, the test as its manager, and processes that hold some of it."""

import mmap
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpumanager.limits.processes import find
from vcuda_shim._shim import ffi, lib

EDQUOT = 122
PAGE_SIZE = ffi.sizeof("struct vcuda_books")
PATIENCE = 4000
"""Pauses that a process makes for another's request that is under way (TURNS in books.c)."""


def pauses() -> int:
    """How often this thread has slept until now, which no other load of the machine changes."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    memory: mmap.mmap

    @property
    def words(self) -> Any:
        return ffi.cast("struct vcuda_books *", ffi.from_buffer(self.memory))

    def join(self, slot: int) -> Any:
        """The books as the process with this slot has them: its own file description."""
        books: Any = ffi.new("struct books *")
        books.page = self.words
        books.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        books.slot = slot
        return books

    def admit(self, pid: int) -> int:
        """What the manager does at a HELLO."""
        process = find(pid)
        assert process is not None
        slot = lib.region_slot_claim(self.words, pid, process.start_time, pid)
        assert slot >= 0
        return int(slot)

    def enter(self) -> Any:
        """This very process, admitted, with its alive lock."""
        books = self.join(self.admit(os.getpid()))
        assert lib.peers_join(books) == 0
        return books

    def total(self, device: int = 0) -> int:
        return int(lib.region_device_bytes(self.words, device))


def open_page(path: Path, slots: int = 0) -> Page:
    """slots: that pass for taken, without processes."""
    path.write_bytes(bytes(PAGE_SIZE))
    with path.open("r+b") as file:
        page = Page(path, mmap.mmap(file.fileno(), PAGE_SIZE))
    page.words.slot_limit = slots
    return page


@dataclass(frozen=True, slots=True)
class Peer:
    """Another process of the container, in a slot. It waits until it is killed."""

    pid: int
    slot: int

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def die_unreaped(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


@contextmanager
def peer(page: Page, act: Callable[[Any], object]) -> Iterator[Peer]:
    """A process that is admitted, joins, acts and rests. `act` gets its books."""
    (ready, tell), (go, admit) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            books = page.join(int(os.read(go, 10)))
            assert lib.peers_join(books) == 0
            act(books)
            os.write(tell, b"x")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    slot = page.admit(pid)
    os.write(admit, str(slot).encode())
    os.close(tell)
    told = os.read(ready, 1)
    for descriptor in (ready, go, admit):
        os.close(descriptor)
    found = Peer(pid, slot)
    try:
        assert told == b"x", "the peer failed"
        yield found
    finally:
        with suppress(ChildProcessError, ProcessLookupError):
            found.kill()

"""The slot table: the slots of an allocation's books, and the living processes that have them.

A process has one slot, from its first HELLO to its death, or until another program runs in it. All
of that stands in the slot table: after a crash of the manager, slots of processes that live are
watched again, and all others are emptied.

A process that has died may have exported memory that another one holds still, which is charged for
it when it is measured. Until then the slot of an exited process keeps that charge (`exited`).
"""

import errno
import fcntl
import os
import struct
from collections.abc import Callable, ItemsView, Iterable
from dataclasses import dataclass
from typing import Final

from gpumanager.limits.pages.books import Books
from gpumanager.limits.processes import Process, Watcher, runs_in
from gpumanager.limits.socket.protocol import Hello, HelloRefused
from vcuda_shim._shim import lib


@dataclass(slots=True, eq=False)
class TakenSlot:
    """A process's slot, and the stack of the program that took it: exec begins another. adopted:
    the books say that it has it, and nobody else does."""

    slot: int
    stack: int
    adopted: bool = False


class SlotTable:
    """Gives the slots of one allocation to its processes."""

    def __init__(
        self,
        books: Books,
        watcher: Watcher,
        devices: int,
        is_ours: Callable[[Process], bool] = lambda _: True,
        on_slot: Callable[[int, Process | None], None] = lambda _slot, _process: None,
    ) -> None:
        """Take up what an earlier manager has left.

        devices: the allocation's that can be measured. is_ours: whether a process that has a
        slot already belongs to this container. on_slot: called whenever a slot becomes a process's,
        or free, from now on.
        """
        self._books = books
        self._devices = devices
        self._on_slot = on_slot
        self._watcher = watcher
        self._taken: dict[Process, TakenSlot] = {}
        self._exited: dict[Process, int] = {}
        # Watch the living, empty all other slots: nobody was here to see the deaths.
        left: list[tuple[int, Process]] = []
        for slot, owner in self._books.recorded_owners():
            if owner is None or owner in self._taken or not is_ours(owner):
                self._books.free(slot)
            elif found := self._watcher.watch(owner, self.leave):
                self._taken[owner] = TakenSlot(slot, found.stack, adopted=True)
            else:
                left.append((slot, owner))
        for slot, owner in left:
            self._empty(slot, owner)

    def __len__(self) -> int:
        return len(self._taken)

    def __contains__(self, process: Process) -> bool:
        return process in self._taken

    def all(self) -> ItemsView[Process, TakenSlot]:
        return self._taken.items()

    def get(self, process: Process) -> TakenSlot | None:
        return self._taken.get(process)

    def of_pid(self, pid: int) -> Process | None:
        return next((process for process in self._taken if process.pid == pid), None)

    def watch(self, pid: int) -> Process | None:
        """Return the living process of this pid; its exit is noticed from now on."""
        return self._watcher.watch_pid(pid, self.leave)

    def let_go(self, process: Process) -> None:
        """Stop watching a process that got no slot."""
        if process not in self._taken:
            self._watcher.forget(process)

    def give(self, process: Process, hello: Hello, books: int) -> TakenSlot | HelloRefused:
        """Return the slot it has, to another copy of the shim in the same program; else a new one.

        books: a descriptor of the file, to find the processes that hold locks of it.
        """
        taken = self._taken.get(process)
        if taken is not None and (hello.keep or taken.stack == process.stack != 0):
            taken.adopted = False
            return taken
        if hello.keep:
            return HelloRefused(errno.ESTALE, "the process has no slot to keep")
        self._exited.pop(process, None)  # exec: its slot is found again, and emptied
        slot = self._books.claim(process, hello.pid, lambda slot: locked(books, slot))
        if slot is None:
            return HelloRefused(errno.ENOSPC, "all slots are taken: too many processes use the GPU")
        if taken is not None and taken.slot != slot:
            self._on_slot(taken.slot, None)
        self._taken[process] = taken = TakenSlot(slot, process.stack)
        self._on_slot(slot, process)
        return taken

    def leave(self, process: Process) -> None:
        """Free what it held: it is dead, or never learnt that it has a slot."""
        taken = self._taken.pop(process, None)
        if taken is not None:
            self._on_slot(taken.slot, None)
            self._empty(taken.slot, process)

    @property
    def exited(self) -> tuple[Process, ...]:
        """Return dead processes that are charged for memory which others may hold."""
        return tuple(self._exited)

    def forget_exited(self, exited: Iterable[Process]) -> None:
        """Release the slots of these: all others were measured since they died."""
        for process in exited:
            slot = self._exited.pop(process, None)
            if slot is not None:
                self._books.release(slot, process)

    def _empty(self, slot: int, process: Process) -> None:
        if self._books.leave(slot, process, self._devices):
            self._exited[process] = slot
        else:
            self._books.release(slot, process)
        if not self._taken:
            self.forget_exited(self.exited)

    def sweep(self) -> None:
        """Free the slots of programs that have gone: by exec, or by a death that was not reported.

        What a program held went with it, though its process may run another one by now.
        """
        for process, taken in list(self._taken.items()):
            if not runs_in(taken.stack, process):
                self._watcher.forget(process)
                self.leave(process)


_FLOCK: Final = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: type, whence, start, length, pid."""


def locked(books: int, slot: int) -> bool:
    """Return whether anybody else holds the byte of this slot. books: a descriptor of the file.

    Where the file system knows no locks nobody holds any.
    """
    wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, lib.VCUDA_ALIVE_BYTE + slot, 1, 0)
    try:
        answer = fcntl.fcntl(books, fcntl.F_OFD_GETLK, wanted)
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

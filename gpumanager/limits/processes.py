"""Processes of this machine: which one a pid means, and the moment it dies.

A pid alone is reused; a pid and its start time are not. A pidfd reports death at once. Where
the kernel gives none (before 5.3, or when descriptors run out), and beyond what an allocation may
have, /proc is looked at twice a second.

A connection that a process keeps to ask again is known here as well, for it must not outlive its
process: the kernel names the caller by a pid alone, and a child may have inherited the other end.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from gpumanager.limits.socket.bounds import Descriptors

POLL_SECONDS: Final = 0.5

# in /proc/<pid>/stat, counted from the state, the first field after the program's name
_STATE, _PARENT, _THREADS, _START_TIME, _STACK = 0, 1, 17, 19, 25
_FLAGS: Final = 6
_PF_EXITING: Final = 0x4


@dataclass(frozen=True, slots=True)
class Process:
    """start_time: in clock ticks since boot, field 22 of /proc/<pid>/stat.

    stack: where its stack begins, field 28, which differs from one exec to the next; 0: unknown.
    """

    pid: int
    start_time: int
    stack: int = field(default=0, compare=False)


def find(pid: int) -> Process | None:
    """Return the living process of this pid; None if there is none.

    A zombie has exited, unless it is a leader with other threads that still run.
    """
    fields = _fields(pid)
    if len(fields) <= _STACK or (fields[_STATE] in b"ZX" and int(fields[_THREADS]) <= 1):
        return None
    return Process(pid, int(fields[_START_TIME]), int(fields[_STACK]))


def _read_stat(pid: int) -> bytes:
    """Return /proc/<pid>/stat, empty if there is none."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - each HELLO
        return file.read(4096)
    return b""


def _fields(pid: int) -> list[bytes]:
    return _read_stat(pid).rpartition(b")")[2].split()


def command_of(process: Process) -> str:
    """Return its program's name, up to 15 letters, as the kernel has it; empty after its end."""
    name = _read_stat(process.pid).partition(b"(")[2].rpartition(b")")[0]
    text = name.decode(errors="replace") if alive(process) else ""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def alive(process: Process) -> bool:
    return find(process.pid) == process


def exiting(process: Process) -> bool:
    """Return whether it has ended or is about to: the kernel closes its files, a driver's among
    them, before anybody is told."""
    fields = _fields(process.pid)
    return not alive(process) or bool(int(fields[_FLAGS]) & _PF_EXITING)


def runs_in(stack: int, process: Process) -> bool:
    """Return whether the program whose stack that is runs in the process yet, as far as stacks
    tell."""
    found = find(process.pid)
    return found == process and (found.stack == stack or 0 in (found.stack, stack))


def parent_of(process: Process) -> int:
    """Return the pid of its parent, as far as that lives; 0 for one that has ended."""
    fields = _fields(process.pid)
    return int(fields[_PARENT]) if alive(process) and len(fields) > _PARENT else 0


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable at the process's death; None where there are
    none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError, OverflowError):
        return None


@contextmanager
def pidfd_of(process: Process) -> Iterator[int | None]:
    """Yield a descriptor that means this process and can mean no other; None where it has ended, or
    the kernel gives none.

    A pid may mean another process by the time it is used. So the descriptor is taken first, then
    it is looked whether the pid means this process still.
    """
    pidfd = _open_pidfd(process.pid)
    try:
        yield pidfd if find(process.pid) == process else None
    finally:
        if pidfd is not None:
            os.close(pidfd)


class Watcher:
    """Calls back at the death of processes, each once, in the running event loop."""

    def __init__(self, descriptors: Descriptors, poll_seconds: float = POLL_SECONDS) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptors = descriptors
        self._poll_seconds = poll_seconds
        self._polled: dict[Process, Callable[[Process], None]] = {}
        self._pidfds: dict[Process, int] = {}
        self._connections: dict[Process, socket.socket] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, process: Process, on_death: Callable[[Process], None]) -> Process | None:
        """Call `on_death` when it dies. Return it as it is; None, and no call, if it is dead."""
        found = self.watch_pid(process.pid, on_death) if alive(process) else None
        return found if found == process else None

    def watch_pid(self, pid: int, on_death: Callable[[Process], None]) -> Process | None:
        """Return the living process of this pid, watched from now on; None if there is none.

        A process that is watched already keeps its first `on_death`.
        """
        pidfd = _open_pidfd(pid)
        process = find(pid)  # after the pidfd: found alive, it is the one that the pidfd means
        known = process is None or process in self._pidfds or process in self._polled
        if pidfd is not None and (known or not self._descriptors.may_watch(len(self._pidfds))):
            os.close(pidfd)
            pidfd = None
        if process is None or known:
            return process
        if pidfd is None:
            self._polled[process] = on_death
            self._poll_later()
        else:
            self._pidfds[process] = pidfd
            self._descriptors.pidfds_now += 1
            self._loop.add_reader(pidfd, self._died, process, on_death)
        return process

    def pidfd(self, process: Process) -> int | None:
        """Return ours, of a process that is watched by one."""
        return self._pidfds.get(process)

    def keep(self, process: Process, connection: socket.socket) -> Callable[[], None] | None:
        """Let a process keep a connection, the newest alone, while it lives: then it is shut down.
        Return what ends that; None where it may not, for descriptors are short."""
        self._hang_up(process)
        own = len(self._pidfds) + len(self._connections)
        if process not in self._pidfds or not self._descriptors.may_keep(own):
            return None
        self._descriptors.pidfds_now += 1
        self._connections[process] = connection
        return partial(self._release, process, connection)

    def _release(self, process: Process, connection: socket.socket) -> None:
        if self._connections.get(process) is connection:
            del self._connections[process]
            self._descriptors.pidfds_now -= 1

    def _hang_up(self, process: Process) -> None:
        if connection := self._connections.get(process):
            self._release(process, connection)
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def forget(self, process: Process) -> None:
        self._hang_up(process)
        self._polled.pop(process, None)
        pidfd = self._pidfds.pop(process, None)
        if pidfd is not None:
            self._descriptors.pidfds_now -= 1
            self._loop.remove_reader(pidfd)
            os.close(pidfd)

    def close(self) -> None:
        for process in [*self._pidfds, *self._polled]:
            self.forget(process)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _died(self, process: Process, on_death: Callable[[Process], None]) -> None:
        self.forget(process)
        on_death(process)

    def _poll_later(self) -> None:
        if self._polled and self._timer is None:
            self._timer = self._loop.call_later(self._poll_seconds, self._poll)

    def _poll(self) -> None:
        self._timer = None
        for process, on_death in list(self._polled.items()):
            if process in self._polled and not alive(process):
                self._died(process, on_death)
        self._poll_later()

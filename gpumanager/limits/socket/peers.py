"""The caller of a socket, and whether it belongs to the allocation of that socket.

A socket lies in a directory that one container has mounted. A process that reaches it from
elsewhere, by a mount of the host's file system, is refused with that reason.
"""

import errno
import socket
import struct
from array import array
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, Protocol

from gpumanager.ids import AllocationID
from gpumanager.limits.processes import Process
from gpumanager.limits.socket.protocol import HelloRefused, welcome

_UCRED: Final = struct.Struct("3i")  # pid, uid, gid


def peer_pid(connection: socket.socket) -> int:
    """Return the caller, as the kernel says; 0 for a process outside the manager's pid
    namespace."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, _uid, _gid = _UCRED.unpack(raw)
    return int(pid)


class PeerCheck(Protocol):
    """Knows the pod of each process. Asked in the loop, for every HELLO: it must not wait."""

    def other_pod(self, allocation: AllocationID, process: Process) -> str | None:
        """Return None for a process that is not known to be another pod's; else that pod, in words.

        process: as just found, by the pid that the kernel gave.
        """


class ProcessOwners(Protocol):
    """Knows the pod of each process that uses a GPU. Asked in the loop: it must not wait."""

    def owner(self, allocations: Collection[AllocationID], process: Process) -> AllocationID | None:
        """Return the one of these that alone is for the pod of this process, where known."""


class Neighbours(Protocol):
    """Knows which processes run together. Asked in the loop: it must not wait."""

    def beside(self, process: Process) -> tuple[int, ...]:
        """Return the pids of its whole container, with its own; empty where that is not known."""


def refuse_other_pod(
    peers: PeerCheck | None, allocation: AllocationID, process: Process
) -> HelloRefused | None:
    reason = peers.other_pod(allocation, process) if peers else None
    return HelloRefused(errno.EACCES, reason) if reason else None


def send_welcome(connection: socket.socket, slot: int, descriptors: Sequence[int]) -> bool:
    """Return whether the caller got it; 128 bytes fit a fresh socket's buffer or nothing does.

    One that did not is hung up on: it would take the next answer for this one.
    """
    message, rights = welcome(slot), array("i", descriptors)
    control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
    try:
        return connection.sendmsg([message], control, socket.MSG_DONTWAIT) == len(message)
    except OSError:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        return False

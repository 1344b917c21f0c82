"""Namespaces and mounts: the system calls of Linux that Python does not offer before 3.12.

Flags are those of <sched.h>, <sys/mount.h> and <sys/prctl.h>.
"""

import ctypes
import os
import signal
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000

MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000
MS_SHARED: Final = 0x100000

_KEPT: Final = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
"""Flags a bind keeps from its source; `statvfs` shows them under the same values."""

_PR_SET_PDEATHSIG: Final = 1

_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = _LIBC.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mount {source} on {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Show `source`, and what is mounted below it, at the existing `target`."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        kept = os.statvfs(target).f_flag & _KEPT
        mount(source, target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def tmpfs(target: str, mode: int) -> None:
    mount("tmpfs", target, "tmpfs", MS_NOSUID, f"mode={mode:o}")


def own_mount_namespace() -> None:
    """Give this process mounts of its own; where it may not, by way of a user namespace.

    In the user namespace it keeps its user and group; what it may do there ends with exec.
    """
    try:
        _check(_LIBC.unshare(CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    except PermissionError:
        user, group = os.geteuid(), os.getegid()
        _check(_LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNS), "unshare(CLONE_NEWUSER | CLONE_NEWNS)")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


def die_with_parent() -> None:
    """Have us killed when the process that started us dies; call after changing credentials."""
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def mount_namespace(process: int | str = "self") -> int:
    """Return the inode that names a process's mount namespace; OSError where it has ended."""
    return Path(f"/proc/{process}/ns/mnt").stat().st_ino

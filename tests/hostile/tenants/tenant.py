"""What a tenant can do with its socket alone: standard library only, runs inside of a container.

Imported by the other programs of this folder. The layout of the pages comes in the environment
variable HOSTILE_LAYOUT, so that no offset is written down twice.
"""

import ctypes
import json
import mmap
import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

SOCKET = "/etc/vcuda/vcuda.sock"
MAGIC, VERSION, HELLO, ABI = 0x41445556, 1, 1, 3
OBSERVER, MEASURE, KEEP, OPENS_CONFIG = 1, 2, 4, 8
LAYOUT = json.loads(os.environ.get("HOSTILE_LAYOUT", "{}"))
CAPABILITIES = 41
NOBODY = 65534
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, SYS_CAPSET = 24, 38, 126


class Welcome(NamedTuple):
    """status: 0 or a negative errno. descriptors: of the configuration, if sent, and the books."""

    status: int
    slot: int
    reason: str
    descriptors: list[int]

    @property
    def books(self) -> int:
        return self.descriptors[-1]


def hello(
    flags: int = 0, pid: int | None = None, path: str = SOCKET, *, old: bool = False
) -> Welcome | None:
    """None if the agent hung up. old: as shims of before, which were handed the configuration."""
    pid = os.getpid() if pid is None else pid
    flags |= 0 if old else OPENS_CONFIG
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(path)
        connection.send(struct.pack("<IHHIIi44s", MAGIC, VERSION, HELLO, ABI, flags, pid, b"x"))
        raw, descriptors, _, _ = socket.recv_fds(connection, 128, 4)
    if len(raw) < 128:
        return None
    _, _, _, status, slot = struct.unpack_from("<IHHii", raw)
    return Welcome(status, slot, raw[16:112].split(b"\0")[0].decode(), descriptors)


def books(descriptor: int) -> mmap.mmap:
    return mmap.mmap(descriptor, LAYOUT["books"])


def read(page: mmap.mmap, at: int, size: int = 8) -> int:
    word: int = struct.unpack_from("<Q" if size == 8 else "<I", page, at)[0]
    return word


def write(page: mmap.mmap, at: int, value: int, size: int = 8) -> None:
    struct.pack_into("<Q" if size == 8 else "<I", page, at, value)


def drop_capabilities() -> str:
    """Root of a container without any capability, and no way to get one; what it has left."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = struct.pack("<Ii", 0x20080522, 0)
    if libc.syscall(SYS_CAPSET, header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(line for line in lines if "CapEff" in line)


def become_nobody() -> None:
    """Any user of a container, without capabilities."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def say(*words: object) -> None:
    print(*words, flush=True)

"""Sandboxes that a program in a container puts itself into: seccomp, Landlock, its own limits.

Runs inside of the container. Each is for good, for this process and its children.
"""

import ctypes
import os
import platform
import resource
import struct

NO_NEW_PRIVS, SECCOMP, FILTER = 38, 22, 2
KILL, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
LOAD, IF_EQUAL, IF_ANY, RETURN = 0x20, 0x15, 0x45, 0x06

NUMBERS = {
    "x86_64": {"mmap": 9, "socket": 41, "connect": 42, "sendto": 44, "recvmsg": 47, "fcntl": 72},
    "aarch64": {"mmap": 222, "socket": 198, "connect": 203, "sendto": 206, "recvmsg": 212}
    | {"fcntl": 25},
}[platform.machine()]
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""The same on all machines, as are all system calls of these years."""

READ_FILE, READ_DIRECTORY, EXECUTE = 4, 8, 1

_libc = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def forbid(call: str, error: int | None, where: tuple[int, int] | None = None) -> None:
    """By seccomp: this system call fails with `error`, or with None ends the process.

    where: of which argument any of these bits must be set for that.
    """
    verdict = KILL if error is None else ERRNO | error
    argument, bits = where or (0, 0)
    narrowed = [
        struct.pack("=HBBI", LOAD, 0, 0, 16 + 8 * argument),
        struct.pack("=HBBI", IF_ANY, 0, 1, bits),
    ]
    body = [*(narrowed if where else []), struct.pack("=HBBI", RETURN, 0, 0, verdict)]
    steps = b"".join(
        (
            struct.pack("=HBBI", LOAD, 0, 0, 0),
            struct.pack("=HBBI", IF_EQUAL, 0, len(body), NUMBERS[call]),
            *body,
            struct.pack("=HBBI", RETURN, 0, 0, ALLOW),
        )
    )
    program = Program(len(steps) // 8, steps)
    assert _libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert _libc.prctl(SECCOMP, FILTER, ctypes.byref(program), 0, 0) == 0


def read_only_below(*paths: str) -> None:
    """By Landlock: nothing else can be read."""
    allowed = READ_FILE | READ_DIRECTORY | EXECUTE
    handled = ctypes.c_uint64(allowed)
    ruleset = _libc.syscall(CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(8), 0)
    assert ruleset >= 0
    for path in paths:
        opened = os.open(path, os.O_PATH)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, opened))
        assert _libc.syscall(ADD_RULE, ruleset, 1, rule, 0) == 0
    assert _libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert _libc.syscall(RESTRICT_SELF, ruleset, 0) == 0


def landlock() -> bool:
    """Whether this kernel has it."""
    return bool(_libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1) > 0)


def take_all_descriptors(but: int = 0) -> list[int]:
    """Have as many open as this process may, but for so many."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (128, hard))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        for descriptor in taken[len(taken) - but :]:
            os.close(descriptor)
    return taken[: len(taken) - but]

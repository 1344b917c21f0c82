"""One child after the other takes all it can, each without one system call, by a filter."""

import ctypes
import os
import platform
import struct

import tenant

MIB = 1 << 20
CALLS = {
    "x86_64": {"getpid": 39, "kill": 62},
    "aarch64": {"getpid": 172, "kill": 129},
}[platform.machine()]
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ERRNO, ALLOW, EPERM = 0x00050000, 0x7FFF0000, 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("count", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def forbid(number: int) -> None:
    steps = (
        (LOAD, 0, 0, 0),
        (JUMP_IF_EQUAL, 0, 1, number),
        (RETURN, 0, 0, ERRNO | EPERM),
        (RETURN, 0, 0, ALLOW),
    )
    packed = b"".join(struct.pack("<HBBI", *step) for step in steps)
    LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    filters = Program(len(steps), packed)
    if LIBC.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(filters), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def take_all(name: str) -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    context, address, held = ctypes.c_void_p(), ctypes.c_uint64(), 0
    started = driver.cuInit(0) or driver.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
    while started == 0 and driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(MIB)) == 0:
        held += 1
    tenant.say(name, started, held)


for name in ("getpid", "", "kill"):
    if (child := os.fork()) == 0:
        if name in CALLS:
            forbid(CALLS[name])
        take_all(name or "nothing")
        os._exit(0)
    os.waitpid(child, 0)

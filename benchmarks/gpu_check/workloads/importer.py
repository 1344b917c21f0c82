"""A process opens the memory of another through its IPC handle, and sees what it may still have."""

import ctypes
import subprocess
import sys
import time

from driver import Driver
from say import say, shim_loaded

SIZE = 512 << 20
LAZY_PEER_ACCESS = 1
HELD_SECONDS = 2.5
"""The manager measures each second."""


class Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


def share():
    driver = Driver()
    address = driver.allocate(SIZE)
    handle = driver.get(Handle, "cuIpcGetMemHandle", ctypes.c_uint64(address.value))
    print(bytes(handle.reserved).hex(), flush=True)
    sys.stdin.read()  # until the importer has seen enough


def main():
    driver = Driver()
    command = [sys.executable, __file__, "share"]
    sharer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    handle = Handle((ctypes.c_ubyte * 64)(*bytes.fromhex(sharer.stdout.readline().strip())))
    time.sleep(HELD_SECONDS)
    before, total = driver.memory()
    driver.get(ctypes.c_uint64, "cuIpcOpenMemHandle_v2", handle, LAZY_PEER_ACCESS)
    time.sleep(HELD_SECONDS)
    after = driver.memory()[0]
    say(shim=shim_loaded(), size=SIZE, total=total, before=before, after=after)
    sharer.communicate()


if __name__ == "__main__":
    share() if sys.argv[1:] == ["share"] else main()

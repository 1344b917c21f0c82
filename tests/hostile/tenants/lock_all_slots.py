"""One lock over the alive bytes of all slots, taken by another process than the one that asks."""

import fcntl
import os
import struct
import sys
import time

import tenant

ALIVE_BYTE = 16

welcome = tenant.hello()
assert welcome is not None
lock = struct.pack(
    "hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, ALIVE_BYTE, tenant.LAYOUT["slots.count"], 0
)
fcntl.fcntl(welcome.books, fcntl.F_OFD_SETLK, lock)
if os.fork() == 0:
    begun, calls = time.monotonic(), 0
    while time.monotonic() < begun + float(sys.argv[1]):
        try:
            answer = tenant.hello()
            status = str(answer.status) if answer is not None else "hung up"
        except OSError as error:  # hung up before all was said
            status = str(error)
        calls += 1
        if calls == 1:
            tenant.say("locked out", status)
    tenant.say("calls", calls)
    os._exit(0)
os.wait()

"""Writes somebody else's process into the slots of its own books.

frame.py SECONDS PID START_TIME: as a pod with hostPID sees them, or as they can be guessed.
"""

import sys
import time

import tenant

SLOT, FIRST = 16, 600

seconds, pid, start = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
welcome = tenant.hello()
assert welcome is not None
page = tenant.books(welcome.books)
at = tenant.LAYOUT["slots"] + SLOT * FIRST
end, written = time.monotonic() + seconds, 0
while time.monotonic() < end:
    tenant.write(page, at + 8, start)
    tenant.write(page, at, pid, size=4)
    tenant.write(page, tenant.LAYOUT["slot_limit"], 1024, size=4)
    written += 1
    if written == 1:
        tenant.say("framed")
    time.sleep(0.01)
tenant.say("written", written)

"""Beside a CUDA program of its own, writes a word of its meter again and again.

write_meter.py SECONDS HOW: overflow, zero, or clock (says that all is paid).
"""

import os
import sys
import time

import tenant

seconds, how = float(sys.argv[1]), sys.argv[2]
welcome = tenant.hello()
assert welcome is not None
page = tenant.books(welcome.books)
meters = tenant.LAYOUT["meters"]
words = [tenant.LAYOUT[f"meter.{name}"] for name in ("charged_ns", "launches")]
clock = tenant.LAYOUT["meter.virtual_time"]
VALUES = {"overflow": 2**64 - 10**13, "zero": 0}

child = os.fork()
if child == 0:
    os.execvp("cuda-play", ["cuda-play", "launch", "--kernel", "2ms", "--seconds", str(seconds)])
end = time.monotonic() + seconds
written = 0
while time.monotonic() < end and os.waitpid(child, os.WNOHANG)[0] == 0:
    if how == "clock":
        tenant.write(page, meters + clock, 0)
    else:
        for word in words:
            tenant.write(page, meters + word, VALUES[how])
    if not written:
        tenant.say("writes")
    written += 1
    time.sleep(0.0005)
tenant.say("written", written)

"""Root without capabilities: opens its configuration anew for writing, and raises its limits.

rewrite_limits.py SECONDS: then holds 2 GiB behind the shim for so long.
"""

import mmap
import os
import struct
import subprocess
import sys

import tenant

LIMIT, MEMORY = 128, 16

tenant.drop_capabilities()
welcome = tenant.hello()
assert welcome is not None
try:
    config = os.open(f"/proc/self/fd/{welcome.descriptors[0]}", os.O_RDWR)
    with mmap.mmap(config, tenant.LAYOUT["config"]) as page:
        struct.pack_into("<QII", page, LIMIT + MEMORY, 8 << 30, 99, 99)
    tenant.say("rewritten")
except OSError as error:
    tenant.say("not writable:", error.strerror)
subprocess.run(["cuda-play", "hold", "--memory", "2GiB", "--seconds", sys.argv[1]], check=False)

"""An honest container whose processes come and go: each must be served. newcomers.py SECONDS"""

import subprocess
import sys
import time

import tenant

HOLD = ("cuda-play", "hold", "--memory", "64MiB", "--seconds", "0.05")

tenant.say("begins")
ends, started, refused, slowest = time.monotonic() + float(sys.argv[1]), 0, 0, 0.0
while time.monotonic() < ends:
    begun = time.monotonic()
    done = subprocess.run(HOLD, capture_output=True, text=True, check=False)
    started, slowest = started + 1, max(slowest, time.monotonic() - begun)
    if done.returncode != 0:
        refused += 1
        tenant.say("refused", done.returncode, done.stderr.strip()[-300:])
    time.sleep(0.1)
tenant.say("ended refused", refused, "starts", started, f"slowest {slowest:.2f} s")

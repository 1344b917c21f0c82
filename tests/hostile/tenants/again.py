"""Runs a program of this folder again and again, and counts.

again.py SECONDS EACH PROGRAM WORDS...    each run has EACH seconds; then all of it is killed
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import tenant

ends, each = time.monotonic() + float(sys.argv[1]), float(sys.argv[2])
command = (sys.executable, str(Path(__file__).with_name(sys.argv[3])), *sys.argv[4:])
tries = 0
while time.monotonic() < ends:
    words = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    running = subprocess.Popen(command, start_new_session=True, **words)  # type: ignore[call-overload]
    try:
        said, _ = running.communicate(timeout=each)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        said, _ = running.communicate()
    tries += 1
    tenant.say("tries", tries, "the last:", said.strip().rpartition("\n")[2])

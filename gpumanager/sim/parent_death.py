"""Run a command that ends when its parent does: `python -I -S parent_death.py COMMAND …`.

A simulation that is killed cannot clean up; its agent must not stay behind. It is on the way of
everything a simulation starts, so it is a script that loads nothing of ours and no packages.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""Of <sys/prctl.h>."""

if __name__ == "__main__":
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - this is its purpose

"""Hold the lock of a directory until killed: `python hold_state_lock.py DIRECTORY`."""

import asyncio
import sys
import time
from pathlib import Path

from gpumanager.cli.node.state_lock import lock_state

with asyncio.run(lock_state(Path(sys.argv[1]))):
    sys.stdout.write("held\n")
    sys.stdout.flush()
    time.sleep(600)

"""Hold the lock of a directory until killed: `hold_state_lock.py DIRECTORY [hands-over [AFTER]]`.

AFTER: the agent that it took over from.
"""

import asyncio
import sys
import time
from pathlib import Path

from gpumanager.agent.state_lock import AFTER, FILE_NAME, lock_state

directory, words = Path(sys.argv[1]), sys.argv[2:]
with asyncio.run(lock_state(directory, hands_over="hands-over" in words)):
    for after in words[1:]:
        with (directory / FILE_NAME).open("a") as file:
            file.write(f"{AFTER}{after}\n")
    sys.stdout.write("held\n")
    sys.stdout.flush()
    time.sleep(600)

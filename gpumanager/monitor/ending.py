"""The end of a process: asked first, made to after a grace.

A pid may mean another process by the time it is signalled. So a pidfd is taken first, then it is
looked whether the pid means still the process that was found; from then on the pidfd can mean no
other. Without pidfds nobody is ended.
"""

import asyncio
import logging
import os
import signal
from typing import Final

from gpumanager.virtual.processes import Process, find

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 10.0


async def end(process: Process, grace: float = GRACE_SECONDS) -> bool:
    """SIGTERM, and SIGKILL after `grace` seconds; False where it is not that process any more."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except (AttributeError, OSError) as error:
        log.warning("process %d is not ended: %s", process.pid, error)
        return False
    try:
        if find(process.pid) != process:
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not await _dies(pidfd, grace):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            await _dies(pidfd, grace)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        log.warning("process %d is not ended: %s", process.pid, error)
        return False
    finally:
        os.close(pidfd)
    return True


async def _dies(pidfd: int, seconds: float) -> bool:
    loop, dead = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, dead.set)
    try:
        async with asyncio.timeout(seconds):
            await dead.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(pidfd)
    return True

"""The end of a process: asked first, made to after a grace. Without pidfds nobody is ended."""

import asyncio
import logging
import signal
from typing import Final

from gpumanager.limits.processes import Process, pidfd_of

log = logging.getLogger(__name__)

GRACE_SECONDS: Final = 10.0


async def end(process: Process, grace: float = GRACE_SECONDS) -> bool:
    """SIGTERM, and SIGKILL after `grace` seconds; False where it is not that process any more."""
    with pidfd_of(process) as pidfd:
        if pidfd is None:
            return False
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            if not await _dies(pidfd, grace):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                await _dies(pidfd, grace)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            log.warning("cannot kill process %d: %s", process.pid, error)
            return False
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

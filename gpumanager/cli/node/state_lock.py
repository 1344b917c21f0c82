"""One agent on a node: a lock on a file in the directory of the journal.

Two agents would write one journal, each over what the other granted. The kernel holds the lock for
as long as the process lives, so that none is left behind by `kill -9`. A rolling update may start
the new agent before the old one is gone: it waits for a while (decision 0096).
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError, words_of

log = logging.getLogger(__name__)

FILE_NAME: Final = "agent.lock"
WAIT_SECONDS: Final = 60.0
"""Twice what Kubernetes gives a pod to end."""
RETRY_SECONDS: Final = 0.1
LONGEST: Final = 512
"""Bytes that are read of its holder."""


class AnotherAgent(GpuManagerError):
    """Another agent has the state of this node: which, and what to do."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"{path}: another agent of this node holds it ({holder}). Two would write one journal: "
            "end the other one (kubectl get pods -A -o wide shows the agents of a node; "
            "is there a second DaemonSet?), or give this one another --checkpoint-path"
        )


@contextlib.contextmanager
def locked(descriptor: int) -> Iterator[int]:
    """Close it in the end, which gives the lock back."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def lock_state(
    directory: Path, wait: float = WAIT_SECONDS
) -> contextlib.AbstractContextManager[object]:
    """The lock, for as long as the context; waits so many seconds for another agent to end.

    Raises AnotherAgent. Where no lock file can be opened no journal can be written either, so
    nothing is granted: that is said, and the agent goes on without.
    """
    path = directory / FILE_NAME
    try:
        descriptor = _opened(path)
    except OSError as error:
        log.warning("%s: cannot be locked against a second agent: %s", path, words_of(error))
        return contextlib.nullcontext()
    until = time.monotonic() + wait
    said = False
    while not _taken(descriptor):
        if time.monotonic() >= until:
            error_ = AnotherAgent(path, _holder(descriptor))
            os.close(descriptor)
            raise error_
        if not said:
            log.warning("%s; waiting up to %g s", AnotherAgent(path, _holder(descriptor)), wait)
            said = True
        await asyncio.sleep(RETRY_SECONDS)
    _sign(descriptor)
    return locked(descriptor)


def _opened(path: Path) -> int:
    """For reading alone where the disk is read-only: a lock needs no more."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(descriptor: int) -> None:
    """For the message of a second agent; a full disk keeps none from starting."""
    name = os.environ.get("POD_NAME") or socket.gethostname()
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{name}, process {os.getpid()}\n".encode(), 0)


def _holder(descriptor: int) -> str:
    with contextlib.suppress(OSError):
        if text := os.pread(descriptor, LONGEST, 0).decode(errors="replace").strip():
            return text.splitlines()[0]
    return "it has not said who it is"

"""One agent on a node: a lock on a file in the directory of the journal.

Two agents would write one journal, each over what the other granted. The kernel holds the lock for
as long as the process lives, so that none is left behind by `kill -9`. A rolling update may start
the new agent before the old one is gone: it waits for a while (decision 0096).

An agent of claims hands over: the next one registers, lets the kubelet's calls wait, and then holds
a lock on a second file. The first one sees that, ends its calls, and gives the first lock back
(decision 0192). Both locks end with their processes, so nobody waits for an agent that has died.
"""

import asyncio
import contextlib
import fcntl
import io
import logging
import os
import socket
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from gpumanager.agent.monitoring import Monitoring
from gpumanager.errors import GpuManagerError, words_of
from gpumanager.names import CLAIMS
from gpumanager.settings import AgentSettings
from gpumanager.supervisor import Supervisor

log = logging.getLogger(__name__)

T = TypeVar("T")

FILE_NAME: Final = "agent.lock"
NEXT_NAME: Final = "agent.next"
"""Locked by the agent that is ready to take over."""
HANDS_OVER: Final = "hands over when asked"
AFTER: Final = "after "
ASKED_SECONDS: Final = 0.25
"""Between two looks whether the next agent is ready."""
ABANDONED_SECONDS: Final = 30.0
"""How long nobody may serve after a handover: the next agent is started again at once."""
WAIT_SECONDS: Final = 60.0
"""Twice what Kubernetes gives a pod to end."""
RETRY_SECONDS: Final = 0.1
POD_NAME: Final = "POD_NAME"
HOLDER_BYTES: Final = 512
"""Bytes that are read of its holder."""


class AnotherAgent(GpuManagerError):
    """Another agent has the state of this node: which, and what to do."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"{path}: another agent of this node holds it ({holder}). Two would write one journal: "
            "end the other one (kubectl get pods -A -o wide shows the agents of a node; "
            "is there a second DaemonSet?), or give this one another --checkpoint-path"
        )


class LockHolder(NamedTuple):
    """The agent that has the lock. after: the one that handed over to it."""

    name: str
    hands_over: bool = False
    after: str = ""


class StateOwner:
    """When this agent owns the node's state: its journal, and the directories of its containers.

    succeeds: another agent has it, and will hand over. held: keeps the lock.
    """

    def __init__(
        self, settings: AgentSettings, held: contextlib.ExitStack, monitoring: Monitoring
    ) -> None:
        self._directory, self._held, self._monitoring = settings.checkpoint_path, held, monitoring
        self.hands_over = settings.interface == CLAIMS
        self._other = other = lock_holder(self._directory) if self.hands_over else None
        name = os.environ.get(POD_NAME)
        self._was_before = bool(name and other and other.after.startswith(f"{name}, "))
        """It was we who handed over: a container of the old pod that was started again."""
        self.succeeds = other is not None and other.hands_over and not self._was_before

    async def taken(self, stopping: asyncio.Event) -> bool:
        """Take the lock; False where the agent is to stop before. Raises AnotherAgent."""
        waiting = Supervisor()
        if self._other is not None:
            # The agent before this one does not hand over: it serves device plugins, or is older.
            # A rolling update ends it when this pod is ready. Not where this is the older one.
            self._monitoring.stand_by("another agent took over" if self._was_before else "")
            waiting.keep("monitoring", self._monitoring.run)
        try:
            return await self._lock(stopping)
        finally:
            await waiting.stop()
            self._monitoring.resume()

    async def handed_over(self, stopping: asyncio.Event) -> bool:
        """Take the lock from an agent that hands over, once the kubelet's calls come to us and
        wait."""
        asking = await unless(stopping, request_handover(self._directory))
        if asking is None:
            return False
        with asking:
            return await self._lock(stopping)

    async def give_back(self, stopping: asyncio.Event, supervisor: Supervisor) -> None:
        """Serve nothing but probes until this pod is ended, or the next agent is lost."""
        self._held.close()
        self._monitoring.stand_by("handed over to the next agent")
        supervisor.keep("monitoring", self._monitoring.run)
        await unless(stopping, until_abandoned(self._directory))

    async def _lock(self, stopping: asyncio.Event) -> bool:
        lock = await unless(stopping, lock_state(self._directory, hands_over=self.hands_over))
        if lock is not None:
            self._held.enter_context(lock)
        return lock is not None


def lock_holder(directory: Path) -> LockHolder | None:
    """Return the agent that has the lock; None where none has it, or that cannot be read."""
    try:
        with _open(directory / FILE_NAME) as file:
            return None if _lock(file) else _holder(file)
    except OSError:
        return None


async def request_handover(directory: Path) -> contextlib.AbstractContextManager[object]:
    """Allow the other agent to hand over, until the context ends. Raises OSError."""
    file = _open(directory / NEXT_NAME)
    while not _lock(file):  # noqa: ASYNC110 - a third agent has it, and flock sends no event
        await asyncio.sleep(RETRY_SECONDS)
    return file


async def until_asked(directory: Path, asked: asyncio.Event) -> None:
    """Set it when the next agent is ready to take over. Raises OSError."""
    with _open(directory / NEXT_NAME) as file:
        while _lock(file):
            fcntl.flock(file, fcntl.LOCK_UN)
            await asyncio.sleep(ASKED_SECONDS)
    asked.set()


async def until_abandoned(directory: Path, seconds: float = ABANDONED_SECONDS) -> None:
    """Until nobody has had the lock for so long: the next agent has died, and did not return."""
    since = time.monotonic()
    while time.monotonic() < since + seconds:
        await asyncio.sleep(RETRY_SECONDS)
        if lock_holder(directory) is not None:
            since = time.monotonic()


async def lock_state(
    directory: Path, wait: float = WAIT_SECONDS, *, hands_over: bool = False
) -> contextlib.AbstractContextManager[object]:
    """Return the lock, for as long as the context; waits so many seconds for another agent to end.

    hands_over: whether the next agent may ask for it. Raises AnotherAgent. Where no lock file can
    be opened no journal can be written either, so nothing is granted: that is said, and the agent
    goes on without.
    """
    path = directory / FILE_NAME
    try:
        file = _open(path)
    except OSError as error:
        log.warning("%s: cannot lock out a second agent: %s", path, words_of(error))
        return contextlib.nullcontext()
    until = time.monotonic() + wait
    before: LockHolder | None = None
    with contextlib.ExitStack() as closing:
        closing.enter_context(file)
        while not _lock(file):
            known = _holder(file)
            if time.monotonic() >= until:
                raise AnotherAgent(path, known.name)
            if before is None:
                log.warning("%s; waiting up to %g s", AnotherAgent(path, known.name), wait)
            before = known
            await asyncio.sleep(RETRY_SECONDS)
        closing.pop_all()
    name = f"{os.environ.get(POD_NAME) or socket.gethostname()}, process {os.getpid()}"
    lines = [name, HANDS_OVER * hands_over, f"{AFTER}{before.name}" if before else ""]
    with contextlib.suppress(OSError):  # it is for the next agent; a full disk keeps none back
        file.truncate(0)
        file.seek(0)
        file.write("".join(f"{line}\n" for line in lines if line).encode())
    return file


def _open(path: Path) -> io.FileIO:
    """For reading alone where the disk is read-only: a lock needs no more."""
    own = os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        return io.FileIO(os.open(path, own | os.O_RDWR | os.O_CREAT, 0o600), "r+")
    return io.FileIO(os.open(path, own | os.O_RDONLY), "r")


def _lock(file: io.FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: io.FileIO) -> LockHolder:
    with contextlib.suppress(OSError):
        file.seek(0)
        if lines := file.read(HOLDER_BYTES).decode(errors="replace").strip().splitlines():
            after = next((one.removeprefix(AFTER) for one in lines if one.startswith(AFTER)), "")
            return LockHolder(lines[0], HANDS_OVER in lines, after)
    return LockHolder("it has not said who it is")


async def unless(stopping: asyncio.Event, work: Awaitable[T]) -> T | None:
    """Return the result of `work`; None where the agent is to stop before."""
    working, told = asyncio.ensure_future(work), asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        told.cancel()

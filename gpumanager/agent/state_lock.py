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
import logging
import os
import socket
import time
from collections.abc import Awaitable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

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


@dataclass(frozen=True, slots=True)
class LockHolder:
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
        self._directory = settings.checkpoint_path
        self._held = held
        self._monitoring = monitoring
        self.hands_over = settings.interface == CLAIMS
        self._other = lock_holder(self._directory) if self.hands_over else None
        self.succeeds = self._other is not None and self._other.hands_over and not self._was_before

    @property
    def _was_before(self) -> bool:
        """Whether it was we who handed over: a container of the old pod that was started again."""
        name = instance_name()
        return bool(name and self._other and self._other.after.startswith(f"{name}, "))

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


@contextlib.contextmanager
def locked(descriptor: int) -> Iterator[int]:
    """Close it in the end, which gives the lock back."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def instance_name() -> str:
    """Return the name of this agent's pod; empty outside of pods."""
    return os.environ.get("POD_NAME", "")


def lock_holder(directory: Path) -> LockHolder | None:
    """Return the agent that has the lock; None where none has it, or that cannot be read."""
    try:
        descriptor = _opened(directory / FILE_NAME)
    except OSError:
        return None
    try:
        return None if _taken(descriptor) else _holder(descriptor)
    finally:
        os.close(descriptor)


async def request_handover(directory: Path) -> contextlib.AbstractContextManager[object]:
    """Allow the other agent to hand over, until the context ends. Raises OSError."""
    descriptor = _opened(directory / NEXT_NAME)
    while not _taken(descriptor):  # noqa: ASYNC110 - a third agent, which tells nobody
        await asyncio.sleep(RETRY_SECONDS)
    return locked(descriptor)


async def until_asked(directory: Path, asked: asyncio.Event) -> None:
    """Set it when the next agent is ready to take over. Raises OSError."""
    descriptor = _opened(directory / NEXT_NAME)
    with locked(descriptor):
        while _taken(descriptor):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
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
        descriptor = _opened(path)
    except OSError as error:
        log.warning("%s: cannot lock out a second agent: %s", path, words_of(error))
        return contextlib.nullcontext()
    until = time.monotonic() + wait
    before: LockHolder | None = None
    while not _taken(descriptor):
        known = _holder(descriptor)
        if time.monotonic() >= until:
            os.close(descriptor)
            raise AnotherAgent(path, known.name)
        if before is None:
            log.warning("%s; waiting up to %g s", AnotherAgent(path, known.name), wait)
        before = known
        await asyncio.sleep(RETRY_SECONDS)
    name = f"{instance_name() or socket.gethostname()}, process {os.getpid()}"
    lines = [name, HANDS_OVER * hands_over, f"{AFTER}{before.name}" if before else ""]
    with contextlib.suppress(OSError):  # it is for the next agent; a full disk keeps none back
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, "".join(f"{line}\n" for line in lines if line).encode(), 0)
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


def _holder(descriptor: int) -> LockHolder:
    with contextlib.suppress(OSError):
        text = os.pread(descriptor, HOLDER_BYTES, 0).decode(errors="replace")
        if lines := text.strip().splitlines():
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

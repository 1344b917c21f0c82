"""The auditor: reports processes with memory that no limit holds, and ends them by policy.

Each is reported once, as soon as several samples in a row show it; and again if it returns after a
while. The auditor ends only processes that the kernel itself shows to be in a container: never one
of the host, none that may belong to another container, and none with a shim that works as designed.
"""

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from operator import is_
from typing import Final

from gpumanager.gpu.health.reports import NodeEvent
from gpumanager.ids import PodUID
from gpumanager.limits.processes import Process, command_of, pidfd_of
from gpumanager.monitor.ports import NoReports, Reports
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.monitor.unlimited.audit import (
    LOOKS_BEFORE_VERDICT,
    UNLIMITED,
    Key,
    Suspect,
    Tally,
    UnlimitedKind,
    mismatches,
    suspects,
)

log = logging.getLogger(__name__)

REASONS: Final = {
    UnlimitedKind.UNBOOKED: "GpuMemoryBehindTheShim",
    UnlimitedKind.UNLIMITED: "GpuUnlimited",
    UnlimitedKind.OVER_LIMIT: "GpuMemoryBehindTheShim",
    UnlimitedKind.STRANGER: "GpuStranger",
    UnlimitedKind.OVERDRAWN: "GpuTimeOverdrawn",
}
GRACE_SECONDS: Final = 10.0


class AuditPolicy(Enum):
    """What is done about them; pausing is the sharing's (`gpumanager.limits.pausing`)."""

    PAUSE = "pause"
    REPORT = "report"
    END = "end"


async def end(process: Process, grace: float = GRACE_SECONDS) -> bool:
    """Send SIGTERM, and SIGKILL after `grace` seconds; False where it is not that process any more.

    Without pidfds no process is ended.
    """
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


class Auditor:
    """One for the node. looks: in a row, before a finding is sure. names: namespace and name of a
    pod, where they are known. commands: the program's name of a process."""

    def __init__(
        self,
        policy: AuditPolicy = AuditPolicy.REPORT,
        reports: Reports | None = None,
        *,
        looks: int = LOOKS_BEFORE_VERDICT,
        end: Callable[[Process], Awaitable[bool]] = end,
        names: Callable[[PodUID], str | None] = lambda _: None,
        commands: Callable[[Process], str] = command_of,
    ) -> None:
        self._policy = policy
        self._looks_needed = looks
        self._reports = reports or NoReports()
        self._end = end
        self._names = names
        self._commands = commands
        self._looks: dict[Key, int] = {}
        self._looked_at: tuple[object, object] = (None, None)
        """The containers and residents of the last audit."""
        self._mismatched: frozenset[tuple[str, Process]] = frozenset()
        self._ending: dict[Process, asyncio.Task[None]] = {}
        self.tally = Tally()
        self.on_finding: Callable[[NodeEvent], None] = lambda _: None
        """Called with each, which the cluster is told too."""

    async def audit(self, snapshot: Snapshot) -> None:
        """Audit a snapshot. What the driver was not asked, or did not answer, proves nothing."""
        if not (snapshot.asked and snapshot.answered):
            return
        looked_at = (snapshot.containers, snapshot.residents)
        if not self._looks and all(map(is_, looked_at, self._looked_at)):
            return  # nothing was wrong, and nothing has moved
        self._looked_at = looked_at
        found = [
            one
            if one.pod is None or (one.owner and one.owner.uid == one.pod)
            else replace(one, pod_name=self._names(one.pod))
            for one in suspects(snapshot)
        ]
        self._looks = {one.key: self._looks.get(one.key, 0) + 1 for one in found}
        sure = [one for one in found if self._looks[one.key] >= self._looks_needed]
        self.tally.now = Counter(dict.fromkeys(UnlimitedKind, 0))
        self.tally.now.update(one.kind for one in sure)
        self.tally.unlimited = Counter(
            (*one.labels, UNLIMITED[one.kind]) for one in sure if one.kind in UNLIMITED
        )
        for one in sure:
            if self._looks[one.key] != self._looks_needed:
                continue
            new = replace(one, command=self._commands(one.process))
            self.tally.found[new.kind] += 1
            log.warning("%s", new)
            event = NodeEvent(True, REASONS[new.kind], str(new))
            self.on_finding(event)
            if new.pod is None:
                self._reports.event(event)
            for pod in filter(None, (new.pod, *new.also)):
                self._reports.pod_event(pod, event)
        for one in sure if self._policy is AuditPolicy.END else ():
            endable = one.certain and one.kind is not UnlimitedKind.UNLIMITED
            if endable and one.process not in self._ending:
                self._ending[one.process] = asyncio.create_task(self._end_one(one))
        mismatched = mismatches(snapshot)
        for name, process in mismatched - self._mismatched:
            self.tally.mismatches += 1
            log.error("process %d runs with the limits of another pod: %s", process.pid, name)
        self._mismatched = mismatched

    @property
    def unsure(self) -> bool:
        """Whether something was found that another look has to confirm."""
        return any(looks < self._looks_needed for looks in self._looks.values())

    async def stop(self) -> None:
        """Stop waiting for processes that were asked to end; they are left alone."""
        for task in self._ending.values():
            task.cancel()
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    async def _end_one(self, one: Suspect) -> None:
        try:
            if await self._end(one.process):
                self.tally.ended += 1
                log.warning("terminated by policy: %s", one)
        finally:
            self._ending.pop(one.process, None)

"""The auditor: reports processes with memory that no limit holds, and ends them by policy.

Each is reported once, as soon as several samples in a row show it; and again if it returns after a
while. The auditor ends only processes that the kernel itself shows to be in a container: never one
of the host, none that may belong to another container, and none with a shim that works as designed.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from gpumanager.ids import PodUID
from gpumanager.limits.processes import Process, command_of
from gpumanager.monitor.ports import NoReports, Reports
from gpumanager.monitor.snapshot import Snapshot
from gpumanager.monitor.unlimited.audit import (
    LOOKS_BEFORE_VERDICT,
    TOLERANCE,
    UNLIMITED,
    Key,
    Suspect,
    Tally,
    UnlimitedKind,
    counted,
    mismatches,
    suspects,
)
from gpumanager.monitor.unlimited.ending import end
from gpumanager.units import Bytes

log = logging.getLogger(__name__)

REASON: Final = "GpuMemoryBehindTheShim"
REASONS: Final = {
    UnlimitedKind.STRANGER: "GpuStranger",
    UnlimitedKind.UNLIMITED: "GpuUnlimited",
    UnlimitedKind.OVERDRAWN: "GpuTimeOverdrawn",
}
"""The others'."""


class AuditPolicy(Enum):
    """What is done about them; pausing is the sharing's (`gpumanager.limits.pausing`)."""

    PAUSE = "pause"
    REPORT = "report"
    END = "end"


@dataclass(frozen=True, slots=True)
class Rules:
    """tolerance: bytes; looks: in a row."""

    policy: AuditPolicy = AuditPolicy.REPORT
    tolerance: Bytes = TOLERANCE
    looks: int = LOOKS_BEFORE_VERDICT


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """As an event of Kubernetes has it."""

    reason: str
    message: str
    warning: bool = True


class Auditor:
    """One for the node. names: namespace and name of a pod, where they are known. commands: the
    program's name of a process."""

    def __init__(
        self,
        rules: Rules | None = None,
        reports: Reports | None = None,
        end: Callable[[Process], Awaitable[bool]] = end,
        names: Callable[[PodUID], str | None] = lambda _: None,
        commands: Callable[[Process], str] = command_of,
    ) -> None:
        self._rules = rules or Rules()
        self._reports = reports or NoReports()
        self._end = end
        self._names = names
        self._commands = commands
        self._looks: dict[Key, int] = {}
        self._mismatched: frozenset[tuple[str, Process]] = frozenset()
        self._ending: dict[Process, asyncio.Task[None]] = {}
        self.tally = Tally()
        self.on_finding: Callable[[AuditFinding], None] = lambda _: None
        """Told of each, beside the cluster."""

    async def audit(self, snapshot: Snapshot) -> None:
        """One look. What the driver was not asked, or did not answer, tells nothing, neither for
        nor against."""
        if not (snapshot.asked and snapshot.answered):
            return
        found = tuple(map(self._named, suspects(snapshot, self._rules.tolerance)))
        self._looks = counted(self._looks, found)
        sure = [one for one in found if self._looks[one.key] >= self._rules.looks]
        self.tally.now = Counter(dict.fromkeys(UnlimitedKind, 0))
        self.tally.now.update(one.kind for one in sure)
        self.tally.unlimited = Counter(
            (*one.labels, UNLIMITED[one.kind]) for one in sure if one.kind in UNLIMITED
        )
        self._say(one for one in sure if self._looks[one.key] == self._rules.looks)
        if self._rules.policy is AuditPolicy.END:
            self._end_all(
                one for one in sure if one.certain and one.kind is not UnlimitedKind.UNLIMITED
            )
        self._compare(snapshot)

    @property
    def unsure(self) -> bool:
        """Whether something was found that another look has to confirm."""
        return any(looks < self._rules.looks for looks in self._looks.values())

    async def stop(self) -> None:
        """A process that was asked to end is left alone."""
        for task in self._ending.values():
            task.cancel()
        await asyncio.gather(*self._ending.values(), return_exceptions=True)

    def _named(self, one: Suspect) -> Suspect:
        if one.pod is None or (one.owner and one.owner.uid == one.pod):
            return one
        return replace(one, pod_name=self._names(one.pod))

    def _say(self, news: Iterable[Suspect]) -> None:
        for new in news:
            one = replace(new, command=self._commands(new.process))
            self.tally.found[one.kind] += 1
            log.warning("%s", one)
            event = AuditFinding(REASONS.get(one.kind, REASON), str(one))
            self.on_finding(event)
            if one.pod is None:
                self._reports.event(event)
            for pod in filter(None, (one.pod, *one.also)):
                self._reports.pod_event(pod, event)

    def _end_all(self, certain: Iterable[Suspect]) -> None:
        for one in certain:
            if one.process not in self._ending:
                self._ending[one.process] = asyncio.create_task(self._end_one(one))

    async def _end_one(self, one: Suspect) -> None:
        try:
            if await self._end(one.process):
                self.tally.ended += 1
                log.warning("terminated by policy: %s", one)
        finally:
            self._ending.pop(one.process, None)

    def _compare(self, snapshot: Snapshot) -> None:
        found = mismatches(snapshot)
        for name, process in found - self._mismatched:
            self.tally.mismatches += 1
            log.error("process %d runs with the limits of another pod: %s", process.pid, name)
        self._mismatched = found

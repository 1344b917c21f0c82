"""Watching the GPUs' health: what the thread that asks NVML tells becomes what is advertised.

`NodeHealth` has one owner, here. Each message is folded into it by the pure functions of `health`;
whoever advertises the GPUs is told when the set of those out of use changes, and the cluster by
`NodeReports`. A question that is not answered harms the GPU it is about, and no other.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.health.events import HealthSource
from gpumanager.gpu.health.prober import (
    HealthMessage,
    HealthProber,
    PendingQuery,
    ProbeRound,
    ProbeTiming,
)
from gpumanager.gpu.health.reports import NodeReports, condition_of, events_between
from gpumanager.gpu.health.state import (
    Cause,
    GpuHealth,
    HealthReason,
    NodeHealth,
    NvmlState,
    RecoveryPolicy,
    after_event,
    after_probe,
    fallen,
)
from gpumanager.gpu.health.xids import Checks, Severity
from gpumanager.gpu.values import GpuUUID

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthRules:
    """How to judge, and when to ask."""

    checks: Checks = field(default_factory=Checks)
    patience: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    timing: ProbeTiming = field(default_factory=ProbeTiming)


class Advertiser(Protocol):
    """Tells the kubelet of the GPUs."""

    async def unhealthy(self, gpus: frozenset[GpuUUID]) -> None:
        """Mark these, and no others, as out of use."""

    async def appeared(self, gpus: frozenset[GpuUUID]) -> None:
        """Add these, which the driver now lists. Called again where it raises GpuManagerError."""


class HealthWatch:
    """health: what is known now, for whoever shows it.

    gpus: those that are advertised at the start. held: others, that containers have. judged: set
    once the driver has answered for the first time, or is never to be asked.
    """

    def __init__(
        self,
        gpus: Iterable[GpuUUID],
        source: HealthSource,
        *,
        rules: HealthRules,
        reports: NodeReports,
        held: Iterable[GpuUUID] = (),
        judged: asyncio.Event | None = None,
    ) -> None:
        self._judged = judged or asyncio.Event()
        self._advertised = frozenset(gpus)
        self.health = NodeHealth().knowing((*sorted(self._advertised), *held))
        self._rules = rules
        self._reports = reports
        self._messages: asyncio.Queue[HealthMessage] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = HealthProber(source, self._rules.timing, self._enqueue, lambda: self._known)
        self._known = tuple(one.gpu for one in self.health.gpus)

    async def watch(self, advertiser: Advertiser) -> None:
        """Watch until cancelled."""
        if not self._rules.checks.any:
            log.info("health checks are disabled: every GPU counts as healthy")
            self._judged.set()
            return
        if self._loop is None:  # else this is a restart, and the thread still runs
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        try:
            timing = self._rules.timing
            while True:
                told: HealthMessage | PendingQuery | None
                try:
                    async with asyncio.timeout(timing.look):
                        told = await self._messages.get()
                except TimeoutError:
                    told = self._thread.unanswered
                if told is not None:
                    await self._take(told, advertiser)
        except asyncio.CancelledError:
            self._thread.stop()
            raise

    async def _take(self, told: HealthMessage | PendingQuery, advertiser: Advertiser) -> None:
        before = self.health
        if isinstance(told, tuple):
            log.debug("the driver reported: %s", told)
        self.health = fold(before, told, time.monotonic(), self._rules)
        self._known = tuple(one.gpu for one in self.health.gpus)
        for event in events_between(before, self.health):
            log.log(logging.WARNING if event.warning else logging.INFO, "%s", event.message)
            self._reports.event(event)
        condition = condition_of(self.health)
        if condition != condition_of(before):
            self._reports.condition(condition)
        if self.health.unhealthy != before.unhealthy:
            await advertiser.unhealthy(self.health.unhealthy)
        if isinstance(told, ProbeRound):
            self._judged.set()
            if new := frozenset(told.seen) - self._advertised:
                try:
                    await advertiser.appeared(new)
                except GpuManagerError as error:
                    log.warning("cannot advertise new GPUs yet: %s", error)
                else:
                    self._advertised |= new

    def _enqueue(self, told: HealthMessage) -> None:
        """Take a message, in the thread; there may be no loop left for it."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._messages.put_nowait, told)


def fold(
    health: NodeHealth, told: HealthMessage | PendingQuery, now: float, rules: HealthRules
) -> NodeHealth:
    """Return what is known after `told`. Pure."""
    match told:
        case tuple():
            for event in told:
                # One without a GPU marks none unhealthy: the next round finds out which it was.
                if event.gpu and (known := health.of(event.gpu)):
                    later = after_event(known, event, now, rules.checks, rules.patience)
                    health = health.changed(later)
            return health
        case ProbeRound(findings, _, events):
            health = replace(health, nvml=NvmlState.ANSWERS, problem="", events=events)
            health = health.knowing(findings)
            return health.changed(
                *(
                    after_probe(known, finding, now, rules.patience)
                    for gpu, finding in findings.items()
                    if (known := health.of(gpu)) and (rules.checks.probes or not known.healthy)
                )
            )
        case str():
            return replace(health, nvml=NvmlState.FAILS, problem=told, events=False)
        case PendingQuery(gpu, _) if gpu is not None:
            health = health.knowing([gpu])
            text = "NVML does not answer questions about it"
            cause = Cause(HealthReason.SILENT, Severity.TRANSIENT, text)
            return health.changed(
                fallen(health.of(gpu) or GpuHealth(gpu), cause, now, rules.patience)
            )
        case _:
            problem = "the driver does not answer NVML"
            return replace(health, nvml=NvmlState.SILENT, problem=problem)

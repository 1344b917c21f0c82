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
from gpumanager.gpu.health.checks import Checks
from gpumanager.gpu.health.events import HealthSource
from gpumanager.gpu.health.prober import (
    EventsReceived,
    HealthMessage,
    HealthProber,
    NvmlFailed,
    PendingQuery,
    ProbeRound,
    ProbeTiming,
)
from gpumanager.gpu.health.reports import NodeReports, NoNodeReports, condition_of, events_between
from gpumanager.gpu.health.state import (
    Cause,
    GpuHealth,
    HealthEvent,
    HealthReason,
    NodeHealth,
    NvmlState,
    RecoveryPolicy,
    after_event,
    after_probe,
    fallen,
)
from gpumanager.gpu.health.xids import Severity
from gpumanager.gpu.values import GpuUUID

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthRules:
    """How to judge, and when to ask."""

    checks: Checks = field(default_factory=Checks)
    patience: RecoveryPolicy = field(default_factory=RecoveryPolicy)
    timing: ProbeTiming = field(default_factory=ProbeTiming)


class Advertiser(Protocol):
    """Whoever tells the kubelet of the GPUs."""

    async def unhealthy(self, gpus: frozenset[GpuUUID]) -> None:
        """These, and no others, are out of use."""

    async def appeared(self, gpus: frozenset[GpuUUID]) -> None:
        """The driver lists these, which were not there.

        Called again where it raises GpuManagerError.
        """


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
        rules: HealthRules | None = None,
        reports: NodeReports | None = None,
        held: Iterable[GpuUUID] = (),
        judged: asyncio.Event | None = None,
    ) -> None:
        self._judged = judged or asyncio.Event()
        self._advertised = frozenset(gpus)
        self.health = NodeHealth().knowing((*sorted(self._advertised), *held))
        self._rules = rules or HealthRules()
        self._reports = reports or NoNodeReports()
        self._told: asyncio.Queue[HealthMessage] = asyncio.Queue()
        self._loop: asyncio.AbstractEventLoop | None = None
        timing = self._rules.timing
        self._thread = HealthProber(source, timing, self._hear, lambda: self._known)
        self._known = tuple(one.gpu for one in self.health.gpus)

    async def watch(self, advertiser: Advertiser) -> None:
        """Until cancelled."""
        if not self._rules.checks.any:
            log.info("health checks are disabled: every GPU counts as healthy")
            self._judged.set()
            return
        if self._loop is None:  # else this is a restart, and the thread still runs
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        try:
            while True:
                await self._take(await self._next(), advertiser)
        except asyncio.CancelledError:
            self._thread.stop()
            raise

    async def _next(self) -> HealthMessage | PendingQuery | None:
        """What is told, or what is not answered in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._rules.timing.look):
                return await self._told.get()
        return self._thread.unanswered

    async def _take(
        self, told: HealthMessage | PendingQuery | None, advertiser: Advertiser
    ) -> None:
        before = self.health
        if told is None:
            return
        if isinstance(told, EventsReceived):
            log.debug("the driver reported: %s", told.events)
        self.health = fold(before, told, time.monotonic(), self._rules)
        self._known = tuple(one.gpu for one in self.health.gpus)
        self._report(before)
        if self.health.unhealthy != before.unhealthy:
            await advertiser.unhealthy(self.health.unhealthy)
        if isinstance(told, ProbeRound):
            self._judged.set()
            await self._welcome(frozenset(told.seen) - self._advertised, advertiser)

    async def _welcome(self, gpus: frozenset[GpuUUID], advertiser: Advertiser) -> None:
        if gpus:
            try:
                await advertiser.appeared(gpus)
            except GpuManagerError as error:
                log.warning("cannot advertise new GPUs yet: %s", error)
            else:
                self._advertised |= gpus

    def _report(self, before: NodeHealth) -> None:
        for event in events_between(before, self.health):
            log.log(logging.WARNING if event.warning else logging.INFO, "%s", event.message)
            self._reports.event(event)
        condition = condition_of(self.health)
        if condition != condition_of(before):
            self._reports.condition(condition)

    def _hear(self, told: HealthMessage) -> None:
        """Called in the thread; there may be no loop left to tell."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._told.put_nowait, told)


def fold(
    health: NodeHealth, told: HealthMessage | PendingQuery, now: float, rules: HealthRules
) -> NodeHealth:
    """What is known after `told`. Pure."""
    match told:
        case EventsReceived(events):
            for event in events:
                health = _after_event(health, event, now, rules)
            return health
        case ProbeRound():
            return _after_round(health, told, now, rules)
        case NvmlFailed(text):
            return replace(health, nvml=NvmlState.FAILS, problem=text, events=False)
        case PendingQuery(gpu, _) if gpu is not None:
            return _after_silence(health, gpu, now, rules)
        case _:
            problem = "the driver does not answer NVML"
            return replace(health, nvml=NvmlState.SILENT, problem=problem)


def _after_event(
    health: NodeHealth, event: HealthEvent, now: float, rules: HealthRules
) -> NodeHealth:
    """An event without a GPU marks none unhealthy: the next round finds out which it was."""
    known = health.of(event.gpu) if event.gpu else None
    if known is None:
        return health
    return health.changed(after_event(known, event, now, rules.checks, rules.patience))


def _after_round(
    health: NodeHealth, round_: ProbeRound, now: float, rules: HealthRules
) -> NodeHealth:
    health = replace(health, nvml=NvmlState.ANSWERS, problem="", events=round_.events)
    health = health.knowing(round_.findings)
    return health.changed(*_after_probes(health, round_, now, rules))


def _after_probes(
    health: NodeHealth, round_: ProbeRound, now: float, rules: HealthRules
) -> Iterable[GpuHealth]:
    for gpu, finding in round_.findings.items():
        known = health.of(gpu)
        if known and (rules.checks.probes or not known.healthy):
            yield after_probe(known, finding, now, rules.patience)


def _after_silence(health: NodeHealth, gpu: GpuUUID, now: float, rules: HealthRules) -> NodeHealth:
    known = health.knowing([gpu]).of(gpu) or GpuHealth(gpu)
    cause = Cause(
        HealthReason.SILENT, Severity.TRANSIENT, "NVML does not answer questions about it"
    )
    return health.knowing([gpu]).changed(fallen(known, cause, now, rules.patience))

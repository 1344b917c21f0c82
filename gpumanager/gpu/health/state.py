"""Whether GPUs are fit for use: what is known of each, and how events and probes change it. Pure.

A GPU that is harmed is out of use at once. It is back when it has answered several probes in a row
without a fault, over a time that depends on what had happened, and that doubles each time it falls
again soon after: a GPU that comes and goes stays away longer and longer, it does not flap.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from gpumanager.gpu.health.xids import Checks, Severity, classify
from gpumanager.gpu.values import GpuUUID


class HealthReason(Enum):
    """Why a GPU is out of use, as events and conditions name it."""

    XID = "GpuXid"
    MEMORY_ERROR = "GpuMemoryError"
    REMAP_FAILED = "GpuRowRemapFailed"
    LOST = "GpuLost"
    SILENT = "GpuSilent"
    RECOVERY = "GpuNeedsRecovery"


@dataclass(frozen=True, slots=True)
class Cause:
    """What harmed a GPU; text: for people."""

    reason: HealthReason
    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class HealthEvent:
    """What the driver reported about a GPU; None: it does not say which, a probe finds it.

    xid: None of a memory error that could not be corrected, and of a GPU that is lost.
    """

    gpu: GpuUUID | None
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a probe found. problem: why the GPU could not be asked; empty if it answered.

    double_bits: uncorrectable memory errors since the driver was loaded; None where it has no ECC.
    remap_pending: a row or page is replaced at the next reset. recovery: what the driver says the
    GPU needs; empty for nothing, and where it does not say.
    """

    problem: str = ""
    double_bits: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False
    recovery: str = ""


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """When a GPU is back. Times in seconds.

    probes: good ones in a row. transient, fatal: for how long, after such a fall. longest: bound
    for what doubling makes of that. relapse: a fall so soon after a recovery counts as another.
    """

    probes: int = 3
    transient: float = 30.0
    fatal: float = 120.0
    longest: float = 3600.0
    relapse: float = 3600.0

    def after(self, severity: Severity, falls: int) -> float:
        first = self.fatal if severity is Severity.FATAL else self.transient
        return min(first * 2.0 ** min(falls - 1, 20), self.longest)


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """What is known of one GPU. Times in seconds of a monotonic clock.

    cause: why it is out of use, or was last. since: when it fell or recovered; None if it never
    did. quiet: good seconds it needs to recover. falls: without a long good time between. good,
    good_since: probes in a row. attention: what somebody should see to, with the GPU in use.
    xids: how often each code was reported.
    """

    gpu: GpuUUID
    healthy: bool = True
    cause: Cause | None = None
    since: float | None = None
    quiet: float = 0.0
    falls: int = 0
    good: int = 0
    good_since: float | None = None
    double_bits: int | None = None
    attention: str = ""
    xids: Mapping[int, int] = field(default_factory=dict)


PENDING_RESET: Final = "a row of its memory is replaced at the next reset: reset it when it is free"


def after_event(
    health: GpuHealth, event: HealthEvent, now: float, checks: Checks, patience: RecoveryPolicy
) -> GpuHealth:
    """Return the health once the driver has reported something about this GPU."""
    if event.xid is None:
        return fallen(health, _MEMORY_ERROR, now, patience) if checks.memory_events else health
    counted = {**health.xids, event.xid: health.xids.get(event.xid, 0) + 1}
    health = replace(health, xids=counted)
    severity = checks.severity(event.xid)
    if severity is None or not severity.harms:
        return health
    cause = Cause(HealthReason.XID, severity, str(classify(event.xid)))
    return fallen(health, cause, now, patience)


def after_probe(
    health: GpuHealth, finding: ProbeResult, now: float, patience: RecoveryPolicy
) -> GpuHealth:
    """Return the health once the GPU was probed."""
    cause = diagnosis(health, finding)
    attention = PENDING_RESET if finding.remap_pending else ""
    if finding.problem:
        return fallen(health, cause, now, patience) if cause else health
    health = replace(health, attention=attention, double_bits=finding.double_bits)
    if cause:
        return fallen(health, cause, now, patience)
    if health.healthy:
        return health
    since = now if health.good_since is None else health.good_since
    good = health.good + 1
    if good >= patience.probes and now - since >= health.quiet:
        return replace(health, healthy=True, since=now, good=0, good_since=None, quiet=0.0)
    return replace(health, good=good, good_since=since)


def diagnosis(health: GpuHealth, finding: ProbeResult) -> Cause | None:
    """Return what is wrong after a probe; None if nothing."""
    if finding.problem:
        return Cause(HealthReason.LOST, Severity.TRANSIENT, finding.problem)
    if finding.remap_failed:
        return Cause(
            HealthReason.REMAP_FAILED, Severity.FATAL, "no memory row is left for a replacement"
        )
    if finding.recovery:
        return Cause(HealthReason.RECOVERY, Severity.FATAL, f"the driver says: {finding.recovery}")
    known, found = health.double_bits, finding.double_bits
    return _MEMORY_ERROR if known is not None and found is not None and found > known else None


def fallen(health: GpuHealth, cause: Cause, now: float, patience: RecoveryPolicy) -> GpuHealth:
    """Return the health of a GPU out of use, or still so: the good time begins anew."""
    if not health.healthy:
        quiet = max(health.quiet, patience.after(cause.severity, health.falls))
        return replace(health, cause=cause, quiet=quiet, good=0, good_since=None)
    soon = health.since is not None and now - health.since < patience.relapse
    falls = health.falls + 1 if soon else 1
    return replace(
        health,
        healthy=False,
        cause=cause,
        since=now,
        quiet=patience.after(cause.severity, falls),
        falls=falls,
        good=0,
        good_since=None,
    )


_MEMORY_ERROR: Final = Cause(
    HealthReason.MEMORY_ERROR, Severity.FATAL, "a memory error that could not be corrected"
)


class NvmlState(Enum):
    """How the driver's management library is."""

    UNKNOWN = "not asked yet"
    ANSWERS = "answers"
    FAILS = "fails"
    SILENT = "does not answer"


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """All that is known. events: whether the driver tells of events; else GPUs are only probed."""

    gpus: tuple[GpuHealth, ...] = ()
    nvml: NvmlState = NvmlState.UNKNOWN
    problem: str = ""
    events: bool = False

    @property
    def unhealthy(self) -> frozenset[GpuUUID]:
        return frozenset(one.gpu for one in self.gpus if not one.healthy)

    def of(self, gpu: GpuUUID) -> GpuHealth | None:
        return next((one for one in self.gpus if one.gpu == gpu), None)

    def knowing(self, gpus: Iterable[GpuUUID]) -> "NodeHealth":
        """Return the health with these GPUs besides: one that is new is fit for use."""
        new = [GpuHealth(gpu) for gpu in dict.fromkeys(gpus) if self.of(gpu) is None]
        return replace(self, gpus=(*self.gpus, *new))

    def changed(self, *gpus: GpuHealth) -> "NodeHealth":
        anew = {one.gpu: one for one in gpus}
        return replace(self, gpus=tuple(anew.get(one.gpu, one) for one in self.gpus))

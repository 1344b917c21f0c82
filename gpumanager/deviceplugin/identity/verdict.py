"""Whether a grant goes on: one table, a row a case. Pure.

The kubelet does not report that a pod was rejected, or has ended. A pod that was rejected after one
of its resources was answered is known by the next new pod (admission is serial); one that ended, by
the kubelet's list of pods, or by its checkpoint where the list cannot be read. Without proof a
grant stays.

What counts as proof depends on the occasion: a call that wants the same devices is answered now, a
pass of the reconciler waits until a grant has looked ended for a while.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from typing import Final, TypeVar

from gpumanager.deviceplugin.admission.transaction import Transaction, View, asks
from gpumanager.grants.grant import EvidenceSource, Grant, State
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kubelet.checkpoint import DeviceHolder
from gpumanager.names import VCORE, VMEMORY

K = TypeVar("K")

Checkpoint = tuple[DeviceHolder, ...]


class Occasion(Flag):
    """Why it is asked. NEXT_POD: a pod is admitted that was not before. CONTESTED: a call has
    devices of this grant. NO_ROOM: a pod would be refused for good. MOVE: its GPU is to go to the
    other interface. PASS: the reconciler compares all evidence."""

    NEXT_POD = auto()
    CONTESTED = auto()
    NO_ROOM = auto()
    MOVE = auto()
    PASS = auto()


class GrantOutcome(Enum):
    """SUSPECT: it counts nowhere, unless its container starts after all."""

    KEEP = "keep"
    SUSPECT = "suspect"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class GrantFacts:
    """What is known besides the grant. None: could not be read.

    view: the kubelet's pods. checkpoint: which container holds which devices. admission: the
    transaction under way. before: the one before it. running: grants that a container runs with.
    lingering: those of ended pods among them, as the reconciler found them.
    """

    view: View | None = None
    checkpoint: Checkpoint | None = None
    admission: Transaction | None = None
    before: Transaction | None = None
    running: frozenset[AllocationID] | None = frozenset()
    lingering: frozenset[AllocationID] = frozenset()
    cores: Mapping[tuple[PodUID, str], frozenset[str]] = field(init=False, repr=False)
    """The cores of each container, by the checkpoint."""

    def __post_init__(self) -> None:
        held = (h for h in self.checkpoint or () if h.resource == VCORE)
        object.__setattr__(self, "cores", {(h.pod_uid, h.container): h.ids for h in held})


@dataclass(frozen=True, slots=True)
class GrantVerdict:
    """reason: for people. ask_runtime: over only if no container runs with it."""

    outcome: GrantOutcome
    reason: str
    ask_runtime: bool = False


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One case. The first row of an occasion that applies decides."""

    occasion: Occasion
    applies: Callable[[Grant, GrantFacts], bool]
    verdict: GrantVerdict


KEPT: Final = GrantVerdict(GrantOutcome.KEEP, "nothing says that it is over")


def verdict(grant: Grant, occasion: Occasion, facts: GrantFacts) -> GrantVerdict:
    """Return what becomes of this grant."""
    for row in _ROWS_OF[occasion]:
        if row.applies(grant, facts):
            proved = facts.running is not None and grant.id not in facts.running
            return row.verdict if proved or not row.verdict.ask_runtime else KEPT
    return KEPT


def over(grants: Iterable[Grant], occasion: Occasion, facts: GrantFacts) -> frozenset[AllocationID]:
    """Return the grants that are over."""
    return frozenset(
        one.id for one in grants if verdict(one, occasion, facts).outcome is GrantOutcome.OVER
    )


def has_ended(owner: PodUID | None, view: View | None) -> bool:
    """Return whether a pod is gone or will never run again, for certain."""
    if owner is None or view is None:
        return False
    return all(pod.ended for pod in view if pod.uid == owner)


def owner(grant: Grant, checkpoint: Checkpoint) -> PodUID | None:
    """Return its pod: the confirmed one, else by the checkpoint, else the expected one."""
    if grant.pod:
        return grant.pod.uid
    held = frozenset(grant.ids.core_ids)
    known = (h.pod_uid for h in checkpoint if h.resource == VCORE and h.ids == held)
    return next(known, grant.owner)


def since(before: Mapping[K, float], seen: Iterable[K], now: float) -> dict[K, float]:
    """Return since when each has been seen; one that was not seen in between starts again."""
    return {name: before.get(name, now) for name in seen}


def _is_under_admission(grant: Grant, facts: GrantFacts) -> bool:
    return facts.admission is not None and grant.ids.admission == facts.admission.admission


def _was_rejected(grant: Grant, facts: GrantFacts) -> bool:
    """Some part of its pod was never asked for, or its memory came without cores, and another pod
    is admitted now. That it is another only the list of pods tells: what looks new by the order of
    calls may be a pod that goes on, if no pods could be read for a moment."""
    before, now = facts.before, facts.admission
    if before is None or now is None or grant.ids.admission != before.admission:
        return False
    if before.admission == now.admission or grant.state is not State.ANSWERED:
        return False
    coming = {one.pod.uid for one in now.candidates}
    if not coming or coming.intersection(one.pod.uid for one in before.candidates):
        return False
    return before.abandoned or not grant.ids.core_ids


def _is_half(grant: Grant, _facts: GrantFacts) -> bool:
    """One of its resources was never asked for. Evidence has no IDs of either."""
    if grant.state is not State.ANSWERED or isinstance(grant.source, EvidenceSource):
        return False
    return not grant.ids.core_ids or not (grant.ids.memory_ids or grant.exclusive)


def _is_not_booked(grant: Grant, facts: GrantFacts) -> bool:
    """The kubelet admits one pod after another and writes its checkpoint after each container. So
    it has every grant of an earlier pod, unless that pod was rejected. It may still have pods that
    have ended. Nothing is known of a grant without a candidate."""
    if grant.state is not State.ANSWERED or facts.checkpoint is None or grant.candidate is None:
        return False
    living = (h for h in facts.checkpoint if not has_ended(h.pod_uid, facts.view))
    return not _is_given(grant, living)


def _never_started(grant: Grant, facts: GrantFacts) -> bool:
    answered = grant.state is State.ANSWERED and facts.checkpoint is not None
    return answered and not _is_given(grant, facts.checkpoint or ())


def _is_put_back(grant: Grant, facts: GrantFacts) -> bool:
    """A static pod that is put back has the UID that it had, and none of the pods is new."""
    now = facts.admission
    if now is None or grant.pod is None or now.candidates or not now.viewed:
        return False
    return any(pod.uid == grant.pod.uid and asks(pod, now.sizes) for pod in facts.view or ())


def _is_superseded(grant: Grant, facts: GrantFacts) -> bool:
    """As when it is put back; a kubelet without its checkpoint gives away devices in use, so that
    it has to be known which containers run."""
    if grant.pod is None or grant.legacy or facts.running is None:
        return False
    own = frozenset(grant.ids.core_ids)
    return facts.cores.get((grant.pod.uid, grant.pod.container), own) != own


def _holder_has_ended(grant: Grant, facts: GrantFacts) -> bool:
    """By the list of pods; by the checkpoint where that cannot be read."""
    holder = owner(grant, facts.checkpoint or ())
    if holder is not None and facts.view is not None:
        return has_ended(holder, facts.view)
    return facts.checkpoint is not None and all(h.pod_uid != holder for h in facts.checkpoint)


def _is_given(grant: Grant, checkpoint: Iterable[DeviceHolder]) -> bool:
    """Some container has exactly these devices of one resource."""
    cores, memory = frozenset(grant.ids.core_ids), frozenset(grant.ids.memory_ids)
    return any((h.resource, h.ids) in ((VCORE, cores), (VMEMORY, memory)) for h in checkpoint)


_NEXT, _CONTESTED, _NO_ROOM = Occasion.NEXT_POD, Occasion.CONTESTED, Occasion.NO_ROOM
_MOVE, _PASS = Occasion.MOVE, Occasion.PASS


def _row(
    occasion: Occasion,
    applies: Callable[[Grant, GrantFacts], bool],
    outcome: GrantOutcome,
    reason: str,
    *,
    ask_runtime: bool = False,
) -> VerdictRow:
    return VerdictRow(occasion, applies, GrantVerdict(outcome, reason, ask_runtime))


ROWS: Final = (
    _row(_NEXT, _was_rejected, GrantOutcome.OVER, "its pod was rejected: another is admitted now"),
    _row(
        _CONTESTED | _NO_ROOM | _MOVE,
        _is_under_admission,
        GrantOutcome.KEEP,
        "its pod is admitted now",
    ),
    _row(_NO_ROOM, _is_half, GrantOutcome.OVER, "its pod was rejected before its second resource"),
    _row(_NO_ROOM, _is_not_booked, GrantOutcome.OVER, "its pod was rejected: no container has it"),
    _row(
        _NO_ROOM | _MOVE,
        lambda grant, _: grant.legacy,
        GrantOutcome.KEEP,
        "gpu-manager granted it, and no container proves that it is over",
    ),
    _row(
        _NO_ROOM | _MOVE,
        lambda grant, facts: has_ended(grant.owner, facts.view),
        GrantOutcome.OVER,
        "its pod has ended",
        ask_runtime=True,
    ),
    _row(_NO_ROOM, _is_put_back, GrantOutcome.OVER, "its pod is put back", ask_runtime=True),
    _row(
        _CONTESTED,
        lambda grant, f: grant.id not in f.lingering and has_ended(grant.owner, f.view),
        GrantOutcome.OVER,
        "its pod has ended",
    ),
    _row(
        _CONTESTED,
        lambda grant, facts: grant.state is State.CONFIRMED and facts.view is not None,
        GrantOutcome.KEEP,
        "its pod still runs",
    ),
    _row(
        _CONTESTED,
        lambda _grant, _facts: True,
        GrantOutcome.SUSPECT,
        "its pod may have been rejected or have ended: the kubelet offers its devices",
    ),
    _row(_PASS, _never_started, GrantOutcome.OVER, "it never started, and no container has it"),
    _row(_PASS, _is_superseded, GrantOutcome.OVER, "its container has other devices since"),
    _row(_PASS, _holder_has_ended, GrantOutcome.OVER, "its pod has ended"),
)
"""Which verdict a grant gets on which occasion."""
_ROWS_OF: Final = {one: tuple(row for row in ROWS if one in row.occasion) for one in Occasion}

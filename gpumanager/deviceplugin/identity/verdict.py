"""Whether a grant is over, suspect or kept: a table with one row for each case. Pure.

The kubelet does not report that a pod was rejected, or has ended. That a pod was rejected between
its two resources shows when the next new pod is admitted, as the kubelet admits one after another.
That a pod has ended shows in the kubelet's list of pods, or in its checkpoint if the list cannot be
read. Without proof a grant is kept.

What counts as proof depends on the occasion: a call for the same devices needs an answer at once;
the reconciler can wait until a grant has looked ended for a while.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Final, NamedTuple

from gpumanager.deviceplugin.admission.transaction import Transaction, View, asks
from gpumanager.grants.grant import EvidenceSource, Grant, State
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kubelet.checkpoint import DeviceHolder
from gpumanager.names import VCORE, VMEMORY

Checkpoint = tuple[DeviceHolder, ...]


class Occasion(Flag):
    """When a verdict is needed. NEXT_POD: the admission of another pod begins. CONTESTED: the
    kubelet offers devices of this grant. NO_ROOM: a pod would be refused for good. MOVE: the GPU is
    to move to the other interface. PASS: the reconciler compares all evidence."""

    NEXT_POD = auto()
    CONTESTED = auto()
    NO_ROOM = auto()
    MOVE = auto()
    PASS = auto()


class GrantOutcome(Enum):
    """SUSPECT: the grant counts nowhere, unless its container starts after all."""

    KEEP = "keep"
    SUSPECT = "suspect"
    OVER = "over"


@dataclass(frozen=True, slots=True)
class GrantFacts:
    """What is known besides the grant. None: could not be read.

    view: the kubelet's list of pods. checkpoint: which container holds which devices.
    admission: the transaction under way, if any. previous: the one before it.
    running: grants of running containers. lingering: those of them whose pods have ended.
    """

    view: View | None = None
    checkpoint: Checkpoint | None = None
    admission: Transaction | None = None
    previous: Transaction | None = None
    running: frozenset[AllocationID] | None = frozenset()
    lingering: frozenset[AllocationID] = frozenset()


class GrantVerdict(NamedTuple):
    """One case: a row of the table. Of the rows for an occasion, the first that applies decides.

    reason: for people. ask_runtime: the grant is kept if a container may still run with it.
    """

    occasion: Occasion
    applies: Callable[[Grant, GrantFacts], bool]
    outcome: GrantOutcome
    reason: str
    ask_runtime: bool = False


def verdict(grant: Grant, occasion: Occasion, facts: GrantFacts) -> GrantVerdict:
    """Return what becomes of this grant."""
    rows = (row for row in ROWS if occasion in row.occasion and row.applies(grant, facts))
    row = next(rows, KEPT)
    may_run = facts.running is None or grant.id in facts.running
    return KEPT if row.ask_runtime and may_run else row


def ended_grants(
    grants: Iterable[Grant], occasion: Occasion, facts: GrantFacts
) -> frozenset[AllocationID]:
    """Return the grants that are over."""
    verdicts = ((grant.id, verdict(grant, occasion, facts).outcome) for grant in grants)
    return frozenset(name for name, outcome in verdicts if outcome is GrantOutcome.OVER)


def has_ended(owner: PodUID | None, view: View | None) -> bool:
    """Return whether it is certain that a pod is gone or will never run again."""
    if owner is None or view is None:
        return False
    return all(pod.ended for pod in view if pod.uid == owner)


def owner(grant: Grant, checkpoint: Checkpoint) -> PodUID | None:
    """Return its pod: the confirmed one, else the checkpoint's, else the expected one."""
    if grant.pod:
        return grant.pod.uid
    cores = frozenset(grant.ids.core_ids)
    holders = (h.pod_uid for h in checkpoint if h.resource == VCORE and h.ids == cores)
    return next(holders, grant.owner)


def _is_under_admission(grant: Grant, facts: GrantFacts) -> bool:
    return facts.admission is not None and grant.ids.admission == facts.admission.admission


def _was_rejected(grant: Grant, facts: GrantFacts) -> bool:
    """Another pod is admitted now, though something of this grant's pod was never asked for, or its
    memory came without cores. Both pods have to be known from the list of pods: without it, what
    looks like a new pod may be the same one, going on."""
    previous, now = facts.previous, facts.admission
    if previous is None or now is None or grant.ids.admission != previous.admission:
        return False
    if previous.admission == now.admission or grant.state is not State.ANSWERED:
        return False
    admitted = {candidate.pod.uid for candidate in now.candidates}
    if not admitted or admitted.intersection(c.pod.uid for c in previous.candidates):
        return False
    return previous.abandoned or not grant.ids.core_ids


def _lacks_half(grant: Grant, _facts: GrantFacts) -> bool:
    """Its cores or its memory were never asked for. A grant from evidence has no IDs at all."""
    if grant.state is not State.ANSWERED or isinstance(grant.source, EvidenceSource):
        return False
    return not grant.ids.core_ids or not (grant.ids.memory_ids or grant.exclusive)


def _is_unheld(grant: Grant, facts: GrantFacts) -> bool:
    """The kubelet writes its checkpoint after each container, before it admits the next pod. So the
    checkpoint has every grant of an earlier pod, unless that pod was rejected. It may also have
    pods that have ended. Nothing is known of a grant without a candidate."""
    if grant.state is not State.ANSWERED or facts.checkpoint is None or grant.candidate is None:
        return False
    living = (h for h in facts.checkpoint if not has_ended(h.pod_uid, facts.view))
    return not _is_held(grant, living)


def _never_started(grant: Grant, facts: GrantFacts) -> bool:
    if grant.state is not State.ANSWERED or facts.checkpoint is None:
        return False
    return not _is_held(grant, facts.checkpoint)


def _has_ended(grant: Grant, facts: GrantFacts) -> bool:
    return has_ended(grant.owner, facts.view)


def _has_gone(grant: Grant, facts: GrantFacts) -> bool:
    return grant.id not in facts.lingering and has_ended(grant.owner, facts.view)


def _is_confirmed(grant: Grant, facts: GrantFacts) -> bool:
    return grant.state is State.CONFIRMED and facts.view is not None


def _static_pod_is_back(grant: Grant, facts: GrantFacts) -> bool:
    """A static pod that is created again keeps its UID, so that the list of pods has no new pod."""
    now = facts.admission
    if now is None or grant.pod is None or now.candidates or not now.viewed:
        return False
    return any(pod.uid == grant.pod.uid and asks(pod, now.sizes) for pod in facts.view or ())


def _has_other_cores(grant: Grant, facts: GrantFacts) -> bool:
    """The checkpoint gives its container other cores, as for a static pod that is created again.
    A kubelet that lost its checkpoint does so, too, while the container runs: so that has to be
    known."""
    if grant.pod is None or grant.legacy or facts.running is None:
        return False
    key, cores = (grant.pod.uid, grant.pod.container), frozenset(grant.ids.core_ids)
    held = (h for h in facts.checkpoint or () if h.resource == VCORE)
    return any((h.pod_uid, h.container) == key and h.ids != cores for h in held)


def _owner_has_ended(grant: Grant, facts: GrantFacts) -> bool:
    """By the list of pods, or by the checkpoint if the list cannot be read."""
    uid = owner(grant, facts.checkpoint or ())
    if uid is not None and facts.view is not None:
        return has_ended(uid, facts.view)
    return facts.checkpoint is not None and all(h.pod_uid != uid for h in facts.checkpoint)


def _is_held(grant: Grant, checkpoint: Iterable[DeviceHolder]) -> bool:
    """Some container holds exactly its cores, or exactly its memory."""
    cores, memory = frozenset(grant.ids.core_ids), frozenset(grant.ids.memory_ids)
    return any((h.resource, h.ids) in ((VCORE, cores), (VMEMORY, memory)) for h in checkpoint)


_NEXT, _CONTESTED, _NO_ROOM = Occasion.NEXT_POD, Occasion.CONTESTED, Occasion.NO_ROOM
_MOVE, _PASS = Occasion.MOVE, Occasion.PASS
_OVER, _KEEP, _SUSPECT = GrantOutcome.OVER, GrantOutcome.KEEP, GrantOutcome.SUSPECT

REJECTED: Final = "its pod was rejected: "
OFFERED: Final = "its pod may have been rejected or have ended: the kubelet offers its devices"
LEGACY: Final = "gpu-manager granted it, and no container proves that it is over"
ROWS: Final = (
    GrantVerdict(_NEXT, _was_rejected, _OVER, f"{REJECTED}another is admitted now"),
    GrantVerdict(_CONTESTED | _NO_ROOM | _MOVE, _is_under_admission, _KEEP, "it is admitted now"),
    GrantVerdict(_NO_ROOM, _lacks_half, _OVER, f"{REJECTED}half was never asked for"),
    GrantVerdict(_NO_ROOM, _is_unheld, _OVER, f"{REJECTED}no container has it"),
    GrantVerdict(_NO_ROOM | _MOVE, lambda grant, _: grant.legacy, _KEEP, LEGACY),
    GrantVerdict(_NO_ROOM | _MOVE, _has_ended, _OVER, "its pod has ended", ask_runtime=True),
    GrantVerdict(_NO_ROOM, _static_pod_is_back, _OVER, "its pod is put back", ask_runtime=True),
    GrantVerdict(_CONTESTED, _has_gone, _OVER, "its pod and its container have ended"),
    GrantVerdict(_CONTESTED, _is_confirmed, _KEEP, "its pod still runs"),
    GrantVerdict(_CONTESTED, lambda _grant, _facts: True, _SUSPECT, OFFERED),
    GrantVerdict(_PASS, _never_started, _OVER, "it never started, and no container has it"),
    GrantVerdict(_PASS, _has_other_cores, _OVER, "its container has other devices since"),
    GrantVerdict(_PASS, _owner_has_ended, _OVER, "its pod has ended"),
)
"""In the order in which they are tried."""
KEPT: Final = GrantVerdict(_PASS, lambda _grant, _facts: True, _KEEP, "nothing says it is over")

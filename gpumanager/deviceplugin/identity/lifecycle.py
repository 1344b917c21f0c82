"""When a grant ends: its pod was rejected, has ended, or is gone.

The kubelet does not report it. A pod that was rejected after one of its resources was answered is
known by the next new pod (admission is serial); one that ended, by the kubelet's list of pods, or
by the checkpoint where the list cannot be read. Without proof a grant stays. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from gpumanager.deviceplugin.admission.transaction import Transaction, View, asks
from gpumanager.deviceplugin.device_ledger import all_ids, holders, of_admission
from gpumanager.grants.grant import EvidenceSource, Grant, Refused, State
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kubelet.checkpoint import DeviceHolder
from gpumanager.names import VCORE, VMEMORY

K = TypeVar("K")

Checkpoint = tuple[DeviceHolder, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """IDs that others hold.

    over: their grant has ended; suspect: it may have; refused: it has not, and says so.
    """

    over: tuple[AllocationID, ...] = ()
    suspect: tuple[AllocationID, ...] = ()
    refused: Refused | None = None


UNDISPUTED: Final = Conflict()


def rejected(
    live: Iterable[Grant], before: Transaction | None, now: Transaction | None
) -> tuple[AllocationID, ...]:
    """Grants to a pod that cannot come any more, because another is being admitted.

    Those of an admission of which some part was never asked for; and memory without cores. That it
    is another only the list of pods tells: what looks new by the order of calls may be a pod that
    goes on, if no pods could be read for a moment.
    """
    if before is None or now is None or before.admission == now.admission:
        return ()
    coming = {one.pod.uid for one in now.candidates}
    if not coming or coming.intersection(one.pod.uid for one in before.candidates):
        return ()
    return tuple(
        a.id
        for a in of_admission(live, before.admission)
        if a.state is State.ANSWERED and (before.abandoned or not a.ids.core_ids)
    )


def conflict(
    live: Iterable[Grant],
    admission: str,
    ids: Iterable[str],
    view: View | None,
    lingering: Collection[AllocationID] = (),
) -> Conflict:
    """Other grants with one of `ids`. lingering: grants of which a container still runs.

    A grant of an ended pod is over. One that is only answered may be of a rejected pod that still
    looks alive: it is suspect until PreStartContainer. The same where no pods can be read.
    """
    wanted = set(ids)
    others = [a for a in holders(live, wanted) if a.ids.admission != admission]
    ended = (a for a in others if a.id not in lingering)
    over = tuple(a.id for a in ended if has_ended(a.owner, view))
    rest = [a for a in others if a.id not in over]
    for holder in rest:
        if holder.state is State.CONFIRMED and view is not None:
            return Conflict(over, refused=Refused(_double(holder, wanted)))
    return Conflict(over, suspect=tuple(a.id for a in rest))


def _double(holder: Grant, ids: set[str]) -> str:
    example = min(ids.intersection(all_ids(holder)))
    return (
        f"device {example} belongs to {holder.pod}, which still runs; the kubelet has offered it "
        "a second time: create the pod again"
    )


def has_ended(owner: PodUID | None, view: View | None) -> bool:
    """True if the pod is gone or will never run again, for certain."""
    if owner is None or view is None:
        return False
    return all(pod.ended for pod in view if pod.uid == owner)


def ended(live: Iterable[Grant], admission: str, view: View | None) -> frozenset[AllocationID]:
    """Grants of pods that have ended by the list, seen while `admission` is under way.

    Not those of gpu-manager: no container proves that they are over.
    """
    if view is None:
        return frozenset()
    alive = {pod.uid for pod in view if not pod.ended} | {None}  # None: of an unknown pod
    others = (a for a in live if a.ids.admission != admission and not a.legacy)
    return frozenset(a.id for a in others if a.owner not in alive)


def again(live: Iterable[Grant], open_: Transaction, view: View | None) -> frozenset[AllocationID]:
    """Grants to pods of which one may be under admission, though none is new.

    A static pod that is put back has the UID that it had. What it held then is not seen to be over.
    """
    if open_.candidates or not open_.viewed:
        return frozenset()
    may = {pod.uid for pod in view or () if asks(pod, open_.sizes)}
    return frozenset(a.id for a in live if a.pod and a.pod.uid in may and not a.legacy)


def never_given(
    live: Iterable[Grant], admission: str, checkpoint: Checkpoint | None, view: View | None
) -> tuple[AllocationID, ...]:
    """Grants of pods that were rejected, seen while `admission` is under way.

    The kubelet admits one pod after another and writes its checkpoint after each container. So the
    checkpoint has every grant of an earlier pod, unless that pod was rejected. It may still have
    pods that have ended, and containers of which only one resource was answered. Nothing is known
    of a grant without a candidate: it stays.
    """
    given = tuple(h for h in checkpoint or () if not has_ended(h.pod_uid, view))
    named = checkpoint is not None
    return tuple(
        a.id
        for a in live
        if a.state is State.ANSWERED
        and a.ids.admission != admission
        and (_is_half(a) or (named and a.candidate is not None and not _is_given(a, given)))
    )


def _is_half(a: Grant) -> bool:
    """Whether one of its resources was never asked for. Evidence has no IDs of either."""
    if isinstance(a.source, EvidenceSource):
        return False
    return not a.ids.core_ids or not (a.ids.memory_ids or a.exclusive)


def owner(allocation: Grant, checkpoint: Checkpoint) -> PodUID | None:
    """Its pod: the confirmed one, else by the checkpoint, else the expected one."""
    if allocation.pod:
        return allocation.pod.uid
    held = frozenset(allocation.ids.core_ids)
    known = (h.pod_uid for h in checkpoint if h.resource == VCORE and h.ids == held)
    return next(known, allocation.owner)


def over(
    live: Iterable[Grant], view: View | None, checkpoint: Checkpoint | None
) -> frozenset[AllocationID]:
    """Grants that look ended now; act on it once they have looked so for a while."""
    return frozenset(a.id for a in live if _is_over(a, view, checkpoint))


def _is_over(a: Grant, view: View | None, checkpoint: Checkpoint | None) -> bool:
    """Also one that never started and that the kubelet's books do not have: nobody was given it."""
    if a.state is State.ANSWERED and checkpoint is not None and not _is_given(a, checkpoint):
        return True
    holder = owner(a, checkpoint or ())
    if holder is not None and view is not None:
        return has_ended(holder, view)
    if checkpoint is None:
        return False
    return all(h.pod_uid != holder for h in checkpoint)


def superseded(live: Iterable[Grant], checkpoint: Checkpoint | None) -> frozenset[AllocationID]:
    """Grants to containers that the kubelet has since given other devices, as with `again`."""
    cores = {(h.pod_uid, h.container): h.ids for h in checkpoint or () if h.resource == VCORE}
    confirmed = ((a, a.pod, frozenset(a.ids.core_ids)) for a in live if a.pod and not a.legacy)
    return frozenset(
        a.id for a, pod, own in confirmed if cores.get((pod.uid, pod.container), own) != own
    )


def _is_given(a: Grant, checkpoint: Checkpoint) -> bool:
    """True if some container has exactly these devices of one resource."""
    halves = {(VCORE, frozenset(a.ids.core_ids)), (VMEMORY, frozenset(a.ids.memory_ids))}
    return any((h.resource, h.ids) in halves for h in checkpoint)


def since(before: Mapping[K, float], seen: Iterable[K], now: float) -> dict[K, float]:
    """Since when each has been seen; one that was not seen in between starts anew."""
    return {name: before.get(name, now) for name in seen}

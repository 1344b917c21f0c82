"""Which pod has an allocation: confirmed in PreStartContainer by the kubelet's checkpoint. Pure.

The checkpoint names the container that holds the IDs about to start, and its IDs of the other
resource. Its core IDs lead to the allocation: the answer to the core resource mounts it into the
container. An init container and an app container may hold the same IDs; then both have the same
limits, and each gets its own allocation in the order of admission.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from gpumanager.deviceplugin.admission.transaction import View
from gpumanager.deviceplugin.device_ledger import holders_of, resized
from gpumanager.deviceplugin.identity.verdict import Checkpoint, has_ended, owner
from gpumanager.grants.grant import Claimant, Grant, State
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.refusals import NotResolved
from gpumanager.ids import AllocationID, PodUID
from gpumanager.kube.plan import ceiling
from gpumanager.kube.pod import PodView
from gpumanager.names import VCORE, VMEMORY


@dataclass(frozen=True, slots=True)
class BookedContainer:
    """A container as the kubelet's books have it: its IDs of both resources."""

    uid: PodUID
    name: str
    core_ids: frozenset[str]
    memory_ids: frozenset[str]


def holding(
    checkpoint: Checkpoint, resource: str, ids: Iterable[str], view: View | None
) -> tuple[BookedContainer, ...]:
    """Return the containers of the pod that hold exactly `ids`, and those with the same cores.

    In the checkpoint's order; empty if there is none. Raises NotResolved where two pods that live
    hold them.
    """
    wanted = frozenset(ids)
    found = [h for h in checkpoint if h.resource == resource and h.ids == wanted]
    if len({h.pod_uid for h in found}) > 1:
        found = [h for h in found if not has_ended(h.pod_uid, view)]
    if len({h.pod_uid for h in found}) > 1:
        pods = " and ".join(sorted({h.pod_uid for h in found}))
        raise NotResolved(f"the kubelet has given the same devices to the pods {pods}")
    uids = {h.pod_uid for h in found}
    theirs = tuple(h for h in checkpoint if h.pod_uid in uids)
    sets = {_container(theirs, h.pod_uid, h.container).core_ids for h in found}
    names = dict.fromkeys((h.pod_uid, h.container) for h in theirs)
    containers = (_container(theirs, *name) for name in names)
    return tuple(one for one in containers if one.core_ids in sets)


def _container(checkpoint: Checkpoint, uid: PodUID, name: str) -> BookedContainer:
    held = {h.resource: h.ids for h in checkpoint if (h.pod_uid, h.container) == (uid, name)}
    nothing = frozenset[str]()
    return BookedContainer(uid, name, held.get(VCORE, nothing), held.get(VMEMORY, nothing))


def match(
    live: tuple[Grant, ...], containers: tuple[BookedContainer, ...]
) -> tuple[tuple[Grant, BookedContainer], ...]:
    """Return each container with its allocation. Raises NotResolved for one that has none.

    containers: all of one pod that hold the same cores, in the order of admission.
    """
    pairs: list[tuple[Grant, BookedContainer]] = []
    left = list(containers)
    while left:
        container = left.pop(0)
        taken = {allocation.id for allocation, _ in pairs}
        pairs.append((_allocation_of(live, container, left, taken), container))
    return tuple(pairs)


def _allocation_of(
    live: tuple[Grant, ...],
    container: BookedContainer,
    following: list[BookedContainer],
    taken: set[AllocationID],
) -> Grant:
    """Return the one confirmed for it; else the newest, leaving as many newer ones as have to
    follow.

    Where one answer was given for two containers of a pod, they share it.
    """
    if not container.core_ids:
        raise NotResolved(f"container {container.name} has GPU memory without {VCORE}")
    fitting = [
        a
        for a in holders_of(live, container.core_ids)
        if frozenset(a.ids.core_ids) == container.core_ids
    ]
    name = container.uid, container.name
    own = [a for a in fitting if a.pod and (a.pod.uid, a.pod.container) == name]
    open_ = [a for a in fitting if a.pod is None and a.id not in taken]
    shared = [a for a in fitting if a.id in taken or a.owner == container.uid]
    if not own and not open_ and not shared:
        raise NotResolved(
            f"container {container.name} of pod {container.uid} holds devices that this agent has "
            "no record of answering: create the pod again"
        )
    confirmed_for = {(a.pod.uid, a.pod.container) for a in fitting if a.pod}
    same = [c for c in following if c.core_ids == container.core_ids]
    after = sum((c.uid, c.name) not in confirmed_for for c in same)
    newest = open_[max(0, len(open_) - 1 - after)] if open_ else None
    return next(iter(own), None) or newest or shared[-1]


def corrected(allocation: Grant, checkpoint: Checkpoint) -> Grant:
    """Return a grant without the memory that the kubelet's books give to other cores.

    Where no pods could be read, memory of one container may have been taken for another's.
    """
    if allocation.state is State.CONFIRMED:
        return allocation
    cores = frozenset(allocation.ids.core_ids)
    names = {(h.pod_uid, h.container) for h in checkpoint if h.resource == VCORE and h.ids == cores}
    if not names:
        return allocation
    held = frozenset[str]().union(*(_container(checkpoint, *name).memory_ids for name in names))
    kept = tuple(i for i in allocation.ids.memory_ids if i in held)
    return resized(allocation, replace(allocation.ids, memory_ids=kept))


def confirmed(
    ledger: Ledger, allocation: Grant, container: BookedContainer, pod: PodView | None
) -> Grant:
    """Return the allocation with its true owner and size. pod: as listed, None if not seen.

    Raises NotResolved for a share without memory.
    """
    if allocation.legacy:
        return replace(allocation, pod=_claimant(allocation, container, pod))
    if not container.memory_ids and not allocation.exclusive:
        raise NotResolved(f"container {container.name} asks for a share of a GPU without {VMEMORY}")
    source = replace(
        allocation.ids,
        core_ids=in_order(ledger, container.core_ids),
        memory_ids=in_order(ledger, container.memory_ids),
    )
    return replace(
        resized(allocation, source),
        state=State.CONFIRMED,
        pod=_claimant(allocation, container, pod),
        suspect=False,
        ceiling=ceiling(pod.annotations) if pod else allocation.ceiling,
        graphics=_graphics(pod, container.name) if pod else allocation.graphics,
    )


def _graphics(pod: PodView, container: str) -> bool:
    return all(one.graphics for one in pod.containers if one.name == container)


def named(live: Iterable[Grant], view: View | None) -> tuple[Grant, ...]:
    """Return grants confirmed while no pods could be read, with their pods' names and
    annotations."""
    by_uid = {pod.uid: pod for pod in view or ()}
    return tuple(
        replace(
            one,
            pod=replace(one.pod, namespace=pod.namespace, name=pod.name),
            ceiling=ceiling(pod.annotations),
            graphics=_graphics(pod, one.pod.container),
        )
        for one in live
        if one.pod and not one.pod.name and (pod := by_uid.get(one.pod.uid))
    )


def in_order(ledger: Ledger, ids: Collection[str]) -> tuple[str, ...]:
    """Return all of them; last those that name a GPU which is missing now."""
    return (*ledger.ids.ordered(ids), *sorted(i for i in ids if i not in ledger.ids))


def _claimant(allocation: Grant, container: BookedContainer, pod: PodView | None) -> Claimant:
    if pod:
        return Claimant(container.uid, pod.namespace, pod.name, container.name)
    for known in (allocation.pod, allocation.candidate):
        if known and known.uid == container.uid:
            return replace(known, container=container.name)
    return Claimant(container.uid, "", "", container.name)


def rivals(
    live: tuple[Grant, ...], owned: Grant, checkpoint: Checkpoint
) -> tuple[list[Grant], list[Grant]]:
    """Return the other pods' grants with IDs of `owned`: those that are over, which the kubelet's
    books do not have, so that they were rejected or have ended; and those that stand, which are
    confirmed, and to which the checkpoint gives some of these very IDs."""
    ids = set(owned.ids.all)
    others = [
        a for a in holders_of(live, ids) if a.id != owned.id and owner(a, checkpoint) != owned.owner
    ]
    over, standing = list[Grant](), list[Grant]()
    for one in others:
        uid, cores = owner(one, checkpoint), frozenset(one.ids.core_ids)
        if not any(h.pod_uid == uid and h.ids == cores for h in checkpoint):
            over.append(one)
        if one.state is State.CONFIRMED and any(
            h.pod_uid == one.owner and ids & h.ids for h in checkpoint
        ):
            standing.append(one)
    return over, standing


def contested(
    live: tuple[Grant, ...], containers: Collection[BookedContainer], view: View | None
) -> tuple[Grant, ...]:
    """Grants of pods that have begun, which these containers would push aside if they start.

    Those with the same devices, and those of which others have been given the devices already. Not
    those of pods that have ended for certain.
    """
    uids, ids = {one.uid for one in containers}, _ids(containers)
    shared = {a.id for a in holders_of(live, ids)}
    pushed = (a for a in live if a.suspect or a.id in shared)
    return tuple(
        a
        for a in pushed
        if a.state is State.CONFIRMED and a.owner not in uids and not has_ended(a.owner, view)
    )


def takes(containers: Collection[BookedContainer], allocation: Grant) -> bool:
    """Return whether they have any of its devices."""
    return not _ids(containers).isdisjoint(allocation.ids.all)


def _ids(containers: Collection[BookedContainer]) -> frozenset[str]:
    return frozenset().union(*(one.core_ids | one.memory_ids for one in containers))

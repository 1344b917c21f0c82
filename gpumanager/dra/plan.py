"""Which grants a claim becomes, or why it cannot be prepared. Pure.

Requests that the same containers use become one grant: one directory, one socket, one budget per
GPU. A container that names several requests, or none, has all of them in one grant. A container
that names one request shares it with all others that name it. A container has one directory, so a
container whose requests would be in several grants is refused. Examples: two claims of this driver
in one container; requests `a` and `b` in one container, and `b` alone in another.

The node's ledger decides last. The scheduler may allocate a share before the node has released it:
a forced deletion of a pod frees its claim while its containers still run.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Claimant, ClaimedDevice, ClaimSource, Grant, Share, State
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.refusals import Refused
from gpumanager.ids import AllocationID
from gpumanager.isolation.table import isolation_of, whole_gpus
from gpumanager.kube.claims import (
    ALL,
    AllocatedDevice,
    ClaimUse,
    PodClaims,
    ResourceClaim,
    base,
    device_name,
)
from gpumanager.kube.vcuda_config import VcudaConfig
from gpumanager.names import VCORE, VMEMORY
from gpumanager.placement.values import Evaluator
from gpumanager.units import CORES_PER_GPU, blocks

_ANOTHER: Final = "delete the pods that use the claim: the next ones may get another GPU"
TO_DO: Final[Mapping[str, str]] = {
    "invalid": "Delete the pod, and make the claim anew",
    "not-allocated": "Delete the pod: kube-scheduler allocates for the next one",
    "pod-unknown": "The kubelet tries again, and it is known by then",
    "other-node": "Delete the pod: kube-scheduler finds the next one a node",
    "gpu-gone": f"Wait until it is back and the kubelet tries again, or {_ANOTHER}",
    "other-interface": f"Wait until that has ended and the kubelet tries again, or {_ANOTHER}",
    "several-grants": "Delete the pod, and make it anew like that",
    "not-free": f"Wait until those have ended and the kubelet tries again, or {_ANOTHER}",
}
"""What the user of a refused claim can do, by the reason in a word."""

REASONS: Final = (*TO_DO, "other")
"""Why claims are refused, in a word each."""

Users = frozenset[tuple[str, str]]
"""Pods, by namespace and name, and their containers."""


@dataclass(frozen=True, slots=True)
class PreparedNode:
    """What a claim is planned on. name: of the node, and of its pool. live: grants of claims.
    claims: requests of this driver's claims on this node, by namespace and name.
    """

    name: str
    ledger: Ledger
    live: tuple[Grant, ...] = ()
    claims: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)


def plan(
    node: PreparedNode,
    claim: ResourceClaim,
    pods: Sequence[PodClaims],
    now: float,
    new_name: Callable[[], AllocationID],
) -> tuple[Grant, ...] | Refused:
    """Return the grants of a claim that has none. pods: those that it is reserved for."""
    gpus = _gpus(node, claim, pods)
    if isinstance(gpus, Refused):
        return gpus
    groups = _groups(claim, pods)
    if refused := _scattered(node, claim, pods, groups) or _differing(claim, groups):
        return refused
    planned: list[Grant] = []
    for group in groups:
        grant = replace(
            _grant(claim, group, gpus, now, new_name()), graphics=_graphics(claim, group, pods)
        )
        if refused := _lacking(node, (*node.live, *planned), grant):
            return refused
        planned.append(grant)
    return tuple(planned)


def _gpus(
    node: PreparedNode, claim: ResourceClaim, pods: Sequence[PodClaims]
) -> Mapping[str, Gpu] | Refused:
    """By the names of the claim's devices."""
    if not claim.devices:
        return Refused(f"claim {claim} is not allocated by this driver", "not-allocated")
    if unknown := {one.name for one in claim.reserved_for} - {pod.name for pod in pods}:
        pod = min(unknown)
        return Refused(f"claim {claim}: what pod {pod} uses of it is not known yet", "pod-unknown")
    known = {device_name(gpu.uuid): gpu for gpu in node.ledger.topology.gpus}
    for one in claim.devices:
        if one.pool != node.name:
            elsewhere = f"claim {claim} is allocated in pool {one.pool}; this is {node.name}"
            return Refused(elsewhere, "other-node")
        if one.name not in known:
            gone = f"claim {claim}: {one.name} is no GPU of node {node.name} now"
            return Refused(gone, "gpu-gone")
        if not one.admin and (holder := node.ledger.closed.get(known[one.name].uuid)):
            held = f"claim {claim}: {one.name} is not free of device plugins yet: {holder}"
            return Refused(held, "other-interface")
    return {one.name: known[one.name] for one in claim.devices}


def _groups(claim: ResourceClaim, pods: Sequence[PodClaims]) -> list[tuple[str, ...]]:
    """Requests by who uses them. One that nobody is known to use is on its own."""
    used = {name: _users(claim, name, pods) for name in claim.requests}
    looks = {name: all(one.admin for one in found) for name, found in claim.requests.items()}
    groups: dict[tuple[Users, bool, str], list[str]] = {}
    for name, users in used.items():
        groups.setdefault((users, looks[name], "" if users else name), []).append(name)
    return [tuple(names) for names in groups.values()]


def _graphics(claim: ResourceClaim, requests: Sequence[str], pods: Sequence[PodClaims]) -> bool:
    """Return whether a container that uses them may have graphics, or none is known to use them."""
    uses = [use for name in requests for _, use in _uses(claim, name, pods)]
    return not uses or any(use.graphics for use in uses)


def _users(claim: ResourceClaim, request: str, pods: Sequence[PodClaims]) -> Users:
    return frozenset((str(pod), use.container) for pod, use in _uses(claim, request, pods))


def _uses(
    claim: ResourceClaim, request: str, pods: Sequence[PodClaims]
) -> Iterator[tuple[PodClaims, ClaimUse]]:
    return (
        (pod, use)
        for pod in pods
        for use in pod.uses
        if pod.namespace == claim.namespace
        and use.claim == claim.name
        and use.request in (ALL, request)
    )


def _scattered(
    node: PreparedNode,
    claim: ResourceClaim,
    pods: Sequence[PodClaims],
    groups: Sequence[tuple[str, ...]],
) -> Refused | None:
    """Where the requests of one container are in several grants. Whole GPUs of one claim may be:
    nothing limits them, so there is no directory that could hide another.

    Example: an init container that uses the two GPUs of which each app container has one later.
    """
    whole = {(claim.name, *group) for group in groups if _is_whole(claim, group)}
    for pod in pods:
        for use in pod.uses:
            if use.claim == claim.name and use.container in pod.shares:
                return Refused(
                    f"container {use.container} of pod {pod} asks for {VCORE} or {VMEMORY} beside "
                    f"claim {claim.name}: each brings limits of its own, and one hides the other; "
                    "ask for all GPUs of a container by one claim",
                    "several-grants",
                )
        for container in dict.fromkeys(use.container for use in pod.uses):
            places: set[tuple[str, ...]] = set()
            for use in (one for one in pod.uses if one.container == container):
                if use.claim == claim.name:
                    named = (g for g in groups if use.request == ALL or use.request in g)
                    places.update((claim.name, *group) for group in named)
                elif found := node.claims.get((pod.namespace, use.claim)):
                    places.add((use.claim, *found))
            ours = any(place[0] == claim.name for place in places)
            if len(places) > 1 and ours and not places <= whole:
                names = "; ".join(f"{name}: {', '.join(of)}" for name, *of in sorted(places))
                return Refused(
                    f"container {container} of pod {pod} uses GPUs that cannot be served in one "
                    f"container ({names}); put them into one claim, and let each container name "
                    "either all of its requests or a request that no other container combines",
                    "several-grants",
                )
    return None


def _differing(claim: ResourceClaim, groups: Sequence[tuple[str, ...]]) -> Refused | None:
    """Where a grant has one burst ceiling, and its requests ask for several."""
    for group in groups:
        limits = {name: one.ceiling for name, one in _limiting(claim, group)}
        if len(set(limits.values())) > 1:
            names = ", ".join(sorted({base(name) for name in limits}))
            return Refused(
                f"claim {claim}: requests {names} are used by the same containers, and their "
                "coreLimit differs; write the same for all of them",
                "invalid",
            )
    return None


def _limiting(claim: ResourceClaim, requests: Sequence[str]) -> Iterator[tuple[str, VcudaConfig]]:
    """Yield the parameters of those that have a share; nothing limits a whole GPU."""
    for one in (device for name in requests for device in claim.requests[name]):
        if not one.admin and one.cores not in (None, CORES_PER_GPU):
            yield one.request, claim.config(one.request)


def _is_whole(claim: ResourceClaim, requests: Sequence[str]) -> bool:
    devices = [one for name in requests for one in claim.requests[name]]
    return all(not one.admin and one.cores in (None, CORES_PER_GPU) for one in devices)


def _grant(
    claim: ResourceClaim,
    requests: tuple[str, ...],
    gpus: Mapping[str, Gpu],
    now: float,
    name: AllocationID,
) -> Grant:
    devices = [one for one in claim.devices if base(one.request) in requests]
    shares: dict[GpuUUID, Share] = {}
    for one in devices:
        gpu = gpus[one.name]
        share, before = _share(one, gpu), shares.get(gpu.uuid, Share(0, 0))
        shares[gpu.uuid] = Share(before.cores + share.cores, before.blocks + share.blocks)
    admin = all(one.admin for one in devices)
    config = next((one for _, one in _limiting(claim, requests)), VcudaConfig())
    return Grant(
        id=name,
        source=ClaimSource(
            claim.uid,
            claim.namespace,
            claim.name,
            tuple(ClaimedDevice(one.name, one.request, one.share) for one in devices),
            admin,
        ),
        shares=shares,
        isolation=_isolation(shares, admin=admin),
        evaluator=_evaluator(shares),
        why="allocated by the scheduler" if not admin else "admin access: looks, and holds nothing",
        time=now,
        state=State.CONFIRMED,
        ceiling=config.ceiling,
        pod=_first_user(claim, requests),
    )


def _share(device: AllocatedDevice, gpu: Gpu) -> Share:
    if device.admin:
        return Share(0, 0)
    cores = CORES_PER_GPU if device.cores is None else device.cores
    return Share(cores, blocks(gpu.memory) if device.blocks is None else device.blocks)


def _isolation(shares: Mapping[GpuUUID, Share], *, admin: bool) -> str:
    """Whole GPUs beside a shared one are held by what holds the shared one."""
    if admin:
        return isolation_of(dict.fromkeys(shares, Share(CORES_PER_GPU, 0)))
    mixed = whole_gpus(shares) and not all(share.exclusive for share in shares.values())
    return isolation_of({u: s for u, s in shares.items() if not (mixed and s.exclusive)})


def _evaluator(shares: Mapping[GpuUUID, Share]) -> Evaluator:
    if not whole_gpus(shares):
        return Evaluator.SHARE
    return Evaluator.FRAGMENT if len(shares) == 1 else Evaluator.LINK


def _first_user(claim: ResourceClaim, requests: tuple[str, ...]) -> Claimant | None:
    """A pod to show it for; there may be more."""
    if not claim.reserved_for:
        return None
    first = claim.reserved_for[0]
    container = f"{claim.name}/{','.join(requests)}"
    return Claimant(first.uid, claim.namespace, first.name, container)


def _lacking(node: PreparedNode, live: Iterable[Grant], grant: Grant) -> Refused | None:
    """What the ledger does not hold, and who has it."""
    live = tuple(live)
    for uuid, share in grant.shares.items() if grant.counts else ():
        gpu = node.ledger.topology.by_uuid(uuid)
        only = replace(grant, shares={uuid: share})
        if gpu is None or (share.cores <= CORES_PER_GPU and node.ledger.fits(live, only)):
            continue
        held = [one for one in live if one.counts and uuid in one.shares]
        users = "; ".join(
            f"{one.shares[uuid].cores} cores and {one.shares[uuid].blocks} blocks by {one.source}"
            for one in held
        )
        return Refused(
            f"{grant.source}: {share.cores} cores and {share.blocks} blocks of "
            f"{device_name(uuid)} (GPU {gpu.index}, {blocks(gpu.memory)} blocks) are not free on "
            f"this node yet: {users or 'nobody has any'}",
            "not-free",
        )
    return None

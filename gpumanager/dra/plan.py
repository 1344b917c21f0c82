"""Which grants a claim becomes, or why it cannot be prepared. Pure.

Requests that the same containers use become one grant: one directory, one socket, one budget per
GPU. A container that names several requests, or none, has all of them in one grant. A container
that names one request shares it with all others that name it. A container has one directory, so a
container whose requests would be in several grants is refused. Examples: two claims of this driver
in one container; requests `a` and `b` in one container, and `b` alone in another.

The node's ledger decides last. The scheduler may allocate a share before the node has released it:
a forced deletion of a pod frees its claim while its containers still run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.grants.grant import Claimant, ClaimedDevice, ClaimSource, Grant, Share, State
from gpumanager.grants.ledger import Ledger
from gpumanager.grants.refusals import ONE_INTERFACE, Refused
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
    "other-node": "Delete the pod: kube-scheduler finds the next one a node",
    "gpu-gone": f"Wait until it is back and the kubelet tries again, or {_ANOTHER}",
    "other-interface": f"Wait until that has ended and the kubelet tries again, or {_ANOTHER}",
    "several-grants": "Delete the pod, and make it anew like that",
    "not-free": f"Wait until those have ended and the kubelet tries again, or {_ANOTHER}",
}
"""What the user of a refused claim can do, by the reason in a word."""

REASONS: Final = (*TO_DO, "other")
"""Why claims are refused, in a word each."""


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
    """Return the grants of a claim that has none. pods: those that it is reserved for, as far as
    there are such pods."""
    gpus = _find_gpus(node, claim)
    if isinstance(gpus, Refused):
        return gpus
    uses: dict[str, list[ClaimUse]] = {}
    groups: dict[tuple[frozenset[tuple[str, str]], bool, str], tuple[str, ...]] = {}
    for name, devices in claim.requests.items():
        used = [
            (str(pod), use)
            for pod in pods
            for use in pod.uses
            if (pod.namespace, use.claim) == (claim.namespace, claim.name)
            and use.request in (ALL, name)
        ]
        uses[name] = [use for _, use in used]
        users = frozenset((pod, use.container) for pod, use in used)
        # A request that nobody is known to use is in a group of its own.
        key = users, all(one.admin for one in devices), "" if users else name
        groups[key] = (*groups.get(key, ()), name)
    if refused := _check_containers(node, claim, pods, tuple(groups.values())):
        return refused
    planned: list[Grant] = []
    for group in groups.values():
        grant = _grant(claim, group, gpus, now, new_name())
        if isinstance(grant, Refused):
            return grant
        used_by = [use for name in group for use in uses[name]]
        graphics = not used_by or any(use.graphics for use in used_by)
        planned.append(replace(grant, graphics=graphics))
    for at, grant in enumerate(planned):
        if refused := _check_ledger(node.ledger, (*node.live, *planned[:at]), grant):
            return refused
    return tuple(planned)


def _find_gpus(node: PreparedNode, claim: ResourceClaim) -> Mapping[str, Gpu] | Refused:
    """Return the claim's GPUs by the names of its devices."""
    if not claim.devices:
        return Refused(f"claim {claim} is not allocated by this driver", "not-allocated")
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


def _check_containers(
    node: PreparedNode,
    claim: ResourceClaim,
    pods: Sequence[PodClaims],
    groups: Sequence[tuple[str, ...]],
) -> Refused | None:
    """Refuse a claim if the requests of one container are in several grants. Whole GPUs of one
    claim may be: nothing limits them, so there is no directory that could hide another.

    Example: an init container that uses the two GPUs of which each app container has one later.
    """
    whole = {
        (claim.name, *group)
        for group in groups
        if not any(one.admin or _is_limited(one) for name in group for one in claim.requests[name])
    }
    for pod in pods:
        for use in pod.uses:
            if use.claim == claim.name and use.container in pod.shares:
                return Refused(
                    f"container {use.container} of pod {pod} asks for {VCORE} or {VMEMORY} beside "
                    f"claim {claim.name}: {ONE_INTERFACE}",
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


def _is_limited(device: AllocatedDevice) -> bool:
    """Return whether a claim has a share of it; nothing limits a whole GPU."""
    return not device.admin and device.cores not in (None, CORES_PER_GPU)


def _grant(
    claim: ResourceClaim,
    requests: tuple[str, ...],
    gpus: Mapping[str, Gpu],
    now: float,
    name: AllocationID,
) -> Grant | Refused:
    """Return one grant for these requests, if they want the same burst ceiling."""
    devices = [one for one in claim.devices if base(one.request) in requests]
    limited = [one.request for one in devices if _is_limited(one)]
    ceilings = {claim.config(request).ceiling for request in limited} or {VcudaConfig().ceiling}
    if len(ceilings) > 1:
        names = ", ".join(sorted(set(map(base, limited))))
        return Refused(
            f"claim {claim}: requests {names} are used by the same containers, and their "
            "coreLimit differs; write the same for all of them",
            "invalid",
        )
    shares: dict[GpuUUID, Share] = {}
    for one in devices:
        gpu = gpus[one.name]
        cores, memory = (0, 0) if one.admin else one.amounts(blocks(gpu.memory))
        before = shares.get(gpu.uuid, Share(0, 0))
        shares[gpu.uuid] = Share(before.cores + cores, before.blocks + memory)
    evaluator = Evaluator.FRAGMENT if len(shares) == 1 else Evaluator.LINK
    admin = all(one.admin for one in devices)
    # Whole GPUs beside a shared one are held by what holds the shared one.
    shared = {uuid: share for uuid, share in shares.items() if not share.exclusive}
    looked_at = dict.fromkeys(shares, Share(CORES_PER_GPU, 0))
    container = f"{claim.name}/{','.join(requests)}"
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
        isolation=isolation_of(looked_at if admin else shared or shares),
        evaluator=evaluator if whole_gpus(shares) else Evaluator.SHARE,
        why="allocated by the scheduler" if not admin else "monitoring only: holds no share",
        time=now,
        state=State.CONFIRMED,
        ceiling=ceilings.pop(),
        # A pod to show it for; there may be more.
        pod=next(
            (Claimant(one.uid, claim.namespace, one.name, container) for one in claim.reserved_for),
            None,
        ),
    )


def _check_ledger(ledger: Ledger, live: Sequence[Grant], grant: Grant) -> Refused | None:
    """Refuse a grant that does not fit beside those in force, and name those in its way."""
    for uuid, share in grant.shares.items() if grant.counts else ():
        gpu = ledger.topology.by_uuid(uuid)
        only = replace(grant, shares={uuid: share})
        if gpu is None or (share.cores <= CORES_PER_GPU and ledger.fits(live, only)):
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

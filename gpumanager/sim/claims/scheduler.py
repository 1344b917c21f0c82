"""A scheduler that looks at nothing but claims: filter, score, reserve, bind. Pure.

Order and meaning are those of kube-scheduler's plugin DynamicResources in Kubernetes 1.37. Of the
nodes that fit the one with the best score is taken; which of several is up to `choose`. What pods
ask for besides, CPU and taints of nodes among it, is not looked at, only their nodeSelector.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpumanager.sim.claims.allocator import CannotAllocate, allocate, allocated_devices
from gpumanager.sim.claims.extended import (
    TEMPORARY,
    ExtendedClaim,
    extended_claim,
    extended_claim_of,
    extended_resources,
)
from gpumanager.sim.claims.pod_claims import (
    allocation_of,
    claim_name,
    consumer,
    consumers,
    is_reserved_for,
    owner,
)
from gpumanager.sim.claims.quantities import NotRepresentable
from gpumanager.sim.claims.selectors import SelectorFailed
from gpumanager.sim.claims.slices import PoolSlice, selects
from gpumanager.sim.claims.writes import (
    PROTECTED,
    ObjectWrite,
    random_suffix,
    with_finalizers,
    with_status,
)
from gpumanager.sim.cluster.resource_rules import ALTERNATIVES, CONSUMERS

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodScheduled:
    """node: its name. writes: allocations and reservations of the claims, then the binding."""

    node: str
    writes: tuple[ObjectWrite, ...]


@dataclass(frozen=True, slots=True)
class PodUnschedulable:
    """reason: in kube-scheduler's words. writes: what is left of an earlier try goes."""

    reason: str
    writes: tuple[ObjectWrite, ...] = ()


def schedule(
    pod: Object,
    nodes: Sequence[Object],
    claims: Sequence[Object],
    classes: Sequence[Object],
    slices: Sequence[PoolSlice],
    *,
    now: str,
    suffix: Callable[[], str] = random_suffix,
    choose: Callable[[Sequence[Object]], Object] = lambda best: best[0],
) -> PodScheduled | PodUnschedulable:
    """Find a node for the pod. claims: of all pods. now: of the allocation, `2026-11-23T08:00:00Z`.

    suffix: five characters that the name of a claim for extended resources ends with.
    """
    mine = _claims_of(pod, claims)
    if isinstance(mine, PodUnschedulable):
        return mine
    resources = extended_resources(pod, classes)
    if stale := extended_claim_of(pod, claims):
        away = (
            ObjectWrite("update", "resourceclaims", with_finalizers(stale, [])),
            ObjectWrite("delete", "resourceclaims", stale),
        )
        return PodUnschedulable("cannot schedule extended resource claim", away)
    to_allocate = [one for one in mine if allocation_of(one) is None]
    allocated = allocated_devices(held for one in claims if (held := allocation_of(one)))
    wanted = (pod.get("spec") or {}).get("nodeSelector") or {}
    selectors = [(allocation_of(one) or {}).get("nodeSelector") for one in mine]
    held_to = [one for one in selectors if one is not None]
    by_name = {one["metadata"]["name"]: one for one in classes}
    fits: list[tuple[int, Object, dict[str, Object], ExtendedClaim | None]] = []
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        # A claim that is allocated already holds its pods to its nodes.
        if not wanted.items() <= labels.items() or not all(selects(one, node) for one in held_to):
            continue
        special = extended_claim(pod, node, resources, suffix())
        asked = [*to_allocate, *([special.claim] if special else ())]
        try:
            found = allocate(node, asked, by_name, slices, allocated)
        except (CannotAllocate, NotRepresentable, SelectorFailed) as error:
            return PodUnschedulable(str(error))
        if found is not None:
            made = {
                one["metadata"].get("uid", TEMPORARY): new
                for one, new in zip(asked, found, strict=True)
            }
            score = sum(_score(one, made.get(one["metadata"]["uid"])) for one in mine)
            fits.append((score, node, made, special))
    if not fits:
        reason = (
            "cannot allocate all claims"
            if to_allocate or resources or not mine
            else "no node for the claims"
        )
        return PodUnschedulable(f"0/{len(nodes)} nodes are available: {reason}")
    best = max(score for score, *_ in fits)
    node = choose([one for score, one, *_ in fits if score == best])
    ((made, special),) = ((new, own) for _, one, new, own in fits if one is node)
    writes = _reserve(pod, mine, made, now)
    if special:
        pod, own = _make(pod, special, made[TEMPORARY], now)
        writes += own
    bound = {**pod, "spec": {**pod["spec"], "nodeName": node["metadata"]["name"]}}
    return PodScheduled(node["metadata"]["name"], (*writes, ObjectWrite("bind", "pods", bound)))


def _claims_of(pod: Object, claims: Sequence[Object]) -> list[Object] | PodUnschedulable:
    """Return those that the pod uses, all of them there and its own to use."""
    namespace = pod["metadata"].get("namespace", "")
    known = {
        one["metadata"]["name"]: one
        for one in claims
        if one["metadata"].get("namespace", "") == namespace
    }
    found = []
    for used in (pod.get("spec") or {}).get("resourceClaims") or ():
        claim = known.get(claim_name(pod, used) or "")
        if claim is None:
            return PodUnschedulable(f'pod has no resource claim for "{used["name"]}" yet')
        name, metadata = claim["metadata"]["name"], pod["metadata"]
        if claim["metadata"].get("deletionTimestamp"):
            return PodUnschedulable(f'resourceclaim "{name}" is being deleted')
        generated = "resourceClaimTemplateName" in used
        if generated and owner(claim) != (metadata["name"], metadata["uid"]):
            return PodUnschedulable(f'resourceclaim "{name}" was not created for the pod')
        full = len(consumers(claim)) >= CONSUMERS and not is_reserved_for(claim, pod)
        if allocation_of(claim) is not None and full:
            return PodUnschedulable("resourceclaim in use")
        found.append(claim)
    return found


def _score(claim: Object, made: Object | None) -> int:
    """Return how good it is: the earlier the alternative of a request, the better."""
    results = (made or allocation_of(claim) or {})["devices"].get("results") or ()
    taken = {one["request"] for one in results}
    return sum(
        ALTERNATIVES - index
        for request in claim["spec"]["devices"].get("requests") or ()
        for index, one in enumerate(request.get("firstAvailable") or ())
        if f"{request['name']}/{one['name']}" in taken
    )


def _reserve(
    pod: Object, claims: Sequence[Object], made: Mapping[str, Object], now: str
) -> list[ObjectWrite]:
    """Return the writes; the finalizer comes before the allocation that it protects."""
    writes = []
    for claim in claims:
        new, changed = made.get(claim["metadata"]["uid"]), claim
        finalizers = list(claim["metadata"].get("finalizers") or ())
        if new is not None and PROTECTED not in finalizers:
            changed = with_finalizers(claim, [*finalizers, PROTECTED])
            writes.append(ObjectWrite("update", "resourceclaims", changed))
        if new is not None:
            changed = with_status(changed, allocation={**new, "allocationTimestamp": now})
        if new is not None or not is_reserved_for(claim, pod):
            changed = with_status(changed, reservedFor=[*consumers(claim), consumer(pod)])
            writes.append(ObjectWrite("update_status", "resourceclaims", changed))
    return writes


def _make(
    pod: Object, special: ExtendedClaim, allocation: Object, now: str
) -> tuple[Object, list[ObjectWrite]]:
    """Return the claim, allocated and reserved, and the pod whose status says what is whose."""
    protected = with_finalizers(special.claim, [PROTECTED])
    allocated = with_status(
        protected,
        allocation={**allocation, "allocationTimestamp": now},
        reservedFor=[consumer(pod)],
    )
    told = {
        "requestMappings": list(special.mappings),
        "resourceClaimName": special.claim["metadata"]["name"],
    }
    pod = with_status(pod, extendedResourceClaimStatus=told)
    return pod, [
        ObjectWrite("create", "resourceclaims", special.claim),
        ObjectWrite("update", "resourceclaims", protected),
        ObjectWrite("update_status", "resourceclaims", allocated),
        ObjectWrite("update_status", "pods", pod),
    ]

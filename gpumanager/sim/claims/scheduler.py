"""A scheduler that looks at nothing but claims: filter, score, reserve. Pure.

Order and meaning are those of kube-scheduler's plugin DynamicResources in Kubernetes 1.37. Of the
nodes that fit, the one with the best score is taken; which of several is up to `choose`. What pods
ask for besides, CPU and taints of nodes among it, is not looked at, only their nodeSelector.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.pod import claim_names
from gpumanager.sim.claims.allocator import allocate, held_devices
from gpumanager.sim.claims.extended import extended_claim, extended_resources
from gpumanager.sim.claims.slices import PoolDevice

Object = Mapping[str, Any]
ALTERNATIVES: Final = 8
"""The most that a request can have."""
PROTECTED: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of a claim that is allocated."""


@dataclass(frozen=True, slots=True)
class PodScheduled:
    """node: its name. claims: of the pod, allocated and reserved for it. status: of the pod."""

    node: str
    claims: tuple[Object, ...]
    status: Object


@dataclass(frozen=True, slots=True)
class PodUnschedulable:
    """reason: in kube-scheduler's words."""

    reason: str


def random_suffix() -> str:
    """Return the five characters that a generated name ends with."""
    return secrets.token_hex(3)[:5]


def schedule(
    pod: Object,
    nodes: Sequence[Object],
    claims: Sequence[Object],
    classes: Sequence[Object],
    devices: Mapping[str, Sequence[PoolDevice]],
    *,
    now: str,
    suffix: Callable[[], str] = random_suffix,
    choose: Callable[[Sequence[Object]], Object] = lambda best: best[0],
) -> PodScheduled | PodUnschedulable:
    """Find a node for the pod. claims: of all pods. devices: by node. now: of the allocation,
    `2026-11-23T08:00:00Z`."""
    mine = _claims_of(pod, claims)
    if isinstance(mine, PodUnschedulable):
        return mine
    status = dict[str, Any]()
    if resources := extended_resources(pod, classes):
        made, mappings = extended_claim(pod, resources, suffix())
        mine.append(made)
        name = made["metadata"]["name"]
        told = {"requestMappings": mappings, "resourceClaimName": name}
        status = {"extendedResourceClaimStatus": told}
    waiting = [one for one in mine if allocation_of(one) is None]
    held = held_devices(has for one in claims if (has := allocation_of(one)))
    wanted = (pod.get("spec") or {}).get("nodeSelector") or {}
    by_name = {one["metadata"]["name"]: one for one in classes}
    # A claim that is allocated already holds its pods to its node, whose name its pool has.
    places = {row["pool"] for one in mine for row in _results(allocation_of(one) or {})}
    fits = list[tuple[int, Object, list[Object]]]()
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        if not wanted.items() <= labels.items() or places - {name}:
            continue
        try:
            found = allocate(waiting, by_name, devices.get(name, ()), held)
        except GpuManagerError as error:
            return PodUnschedulable(str(error))
        if found is not None:
            new = iter(found)
            every = [
                allocation_of(one) or {**next(new), "allocationTimestamp": now} for one in mine
            ]
            fits.append((sum(map(_score, mine, every)), node, every))
    if not fits:
        reason = "cannot allocate all claims" if waiting or not mine else "no node for the claims"
        return PodUnschedulable(f"0/{len(nodes)} nodes are available: {reason}")
    best = max(score for score, *_ in fits)
    node = choose([one for score, one, _ in fits if score == best])
    (every,) = (allocations for _, one, allocations in fits if one is node)
    reserved = tuple(_reserved(*one, pod) for one in zip(mine, every, strict=True))
    return PodScheduled(node["metadata"]["name"], reserved, status)


def allocation_of(claim: Object) -> Object | None:
    return (claim.get("status") or {}).get("allocation")


def is_owner(pod: Object, claim: Object) -> bool:
    """Return whether the claim was made for the pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(one.get("controller") and one["uid"] == pod["metadata"]["uid"] for one in owners)


def _results(allocation: Object) -> Sequence[Object]:
    return (allocation.get("devices") or {}).get("results") or ()


def _claims_of(pod: Object, claims: Sequence[Object]) -> list[Object] | PodUnschedulable:
    """Return those that the pod uses, all of them there and its own to use."""
    namespace, spec = pod["metadata"].get("namespace", ""), pod.get("spec") or {}
    known = {
        one["metadata"]["name"]: one
        for one in claims
        if one["metadata"].get("namespace", "") == namespace
    }
    names = claim_names(spec, pod.get("status") or {})
    found = []
    for used in spec.get("resourceClaims") or ():
        claim = known.get(names.get(used["name"]) or "")
        if claim is None:
            return PodUnschedulable(f'pod has no resource claim for "{used["name"]}" yet')
        name = claim["metadata"]["name"]
        if claim["metadata"].get("deletionTimestamp"):
            return PodUnschedulable(f'resourceclaim "{name}" is being deleted')
        if "resourceClaimTemplateName" in used and not is_owner(pod, claim):
            return PodUnschedulable(f'resourceclaim "{name}" was not created for the pod')
        found.append(claim)
    return found


def _score(claim: Object, allocation: Object) -> int:
    """Return how good it is: the earlier the alternative of a request, the better."""
    taken = {one["request"] for one in _results(allocation)}
    return sum(
        ALTERNATIVES - index
        for request in claim["spec"]["devices"].get("requests") or ()
        for index, one in enumerate(request.get("firstAvailable") or ())
        if f"{request['name']}/{one['name']}" in taken
    )


def _reserved(claim: Object, allocation: Object, pod: Object) -> Object:
    metadata, status = claim["metadata"], claim.get("status") or {}
    user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    users = [one for one in status.get("reservedFor") or () if one != user]
    others = [one for one in metadata.get("finalizers") or () if one != PROTECTED]
    return {
        **claim,
        "metadata": {**metadata, "finalizers": [*others, PROTECTED]},
        "status": {**status, "allocation": allocation, "reservedFor": [*users, user]},
    }

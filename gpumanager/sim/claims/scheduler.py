"""A scheduler that looks at nothing but claims: filter, score, reserve. Pure.

Order and meaning are those of kube-scheduler's plugin DynamicResources in Kubernetes 1.37. Of the
nodes that fit, the one with the best score is taken; which of several is up to `choose`. What pods
ask for besides, CPU and taints of nodes among it, is not looked at, only their nodeSelector.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpumanager.kube.claims import is_allocated, list_requests, list_results
from gpumanager.kube.errors import Object
from gpumanager.kube.pod import claim_names
from gpumanager.sim.claims.allocator import CannotSchedule, allocate, held_devices
from gpumanager.sim.claims.extended import extended_claim

PROTECTED: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of a claim that is allocated."""


@dataclass(frozen=True, slots=True)
class PodScheduled:
    """node: its name. claims: of the pod, allocated and reserved for it. status: of the pod."""

    node: str
    claims: tuple[Object, ...]
    status: Object


def schedule(
    pod: Object,
    nodes: Sequence[Object],
    claims: Sequence[Object],
    classes: Sequence[Object],
    devices: Mapping[str, Sequence[Object]],
    *,
    choose: Callable[[Sequence[str]], str] = lambda best: best[0],
) -> PodScheduled:
    """Find a node for the pod. claims: of all pods. devices: of slices, by node.

    Raises CannotSchedule, NotAClaim, SelectorNotKnown, SelectorFailed.
    """
    mine = _claims_of(pod, claims)
    status: Object = {}
    if made := extended_claim(pod, classes):
        claim, status = made
        mine.append(claim)
    waiting = [one for one in mine if not is_allocated(one)]
    held = held_devices(claims)
    wanted = (pod.get("spec") or {}).get("nodeSelector") or {}
    by_name = {one["metadata"]["name"]: one for one in classes}
    # A claim that is allocated already holds its pods to its node, whose name its pool has.
    places = {row["pool"] for one in mine for row in list_results(one)}
    fits = dict[str, tuple[int, list[Object]]]()
    for metadata in (node["metadata"] for node in nodes):
        name = metadata["name"]
        if not wanted.items() <= (metadata.get("labels") or {}).items() or places - {name}:
            continue
        found = allocate(waiting, by_name, name, devices.get(name, ()), held)
        if found is not None:
            new = iter(found)
            placed = [_reserved(one, pod, new) for one in mine]
            fits[name] = sum(map(_score, placed)), placed
    if not fits:
        reason = "cannot allocate all claims" if waiting or not mine else "no node for the claims"
        raise CannotSchedule(f"0/{len(nodes)} nodes are available: {reason}")
    best = max(score for score, _ in fits.values())
    name = choose([name for name, (score, _) in fits.items() if score == best])
    return PodScheduled(name, tuple(fits[name][1]), status)


def _claims_of(pod: Object, claims: Sequence[Object]) -> list[Object]:
    """Return those that the pod uses, all of them there and its own to use."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    namespace = metadata.get("namespace", "")
    known = {
        one["metadata"]["name"]: one
        for one in claims
        if one["metadata"].get("namespace", "") == namespace
    }
    names = claim_names(spec, pod.get("status") or {})
    found = []
    for used in spec.get("resourceClaims") or ():
        if (claim := known.get(names.get(used["name"], ""))) is None:
            raise CannotSchedule(f'pod has no resource claim for "{used["name"]}" yet')
        name, owners = claim["metadata"]["name"], claim["metadata"].get("ownerReferences") or ()
        if claim["metadata"].get("deletionTimestamp"):
            raise CannotSchedule(f'resourceclaim "{name}" is being deleted')
        own = any(one.get("controller") and one["uid"] == metadata["uid"] for one in owners)
        if "resourceClaimTemplateName" in used and not own:
            raise CannotSchedule(f'resourceclaim "{name}" was not created for the pod')
        found.append(claim)
    return found


def _score(claim: Object) -> int:
    """Return how good its allocation is: the earlier the alternative of a request, the better."""
    taken = {one["request"] for one in list_results(claim)}
    alternatives = (pair for ways in list_requests(claim).values() for pair in enumerate(ways))
    return -sum(index for index, way in alternatives if way.name in taken)


def _reserved(claim: Object, pod: Object, new: Iterator[Object]) -> Object:
    """Return the claim reserved for the pod, with its allocation, or else with the next new one."""
    metadata, status = claim["metadata"], claim.get("status") or {}
    user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    users = [one for one in status.get("reservedFor") or () if one != user]
    others = [one for one in metadata.get("finalizers") or () if one != PROTECTED]
    return {
        **claim,
        "metadata": {**metadata, "finalizers": [*others, PROTECTED]},
        "status": {
            "allocation": status.get("allocation") or next(new),
            "reservedFor": [*users, user],
        },
    }

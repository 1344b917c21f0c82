"""What kube-controller-manager does about claims: make them, release them, delete them. Pure.

From a template comes a claim per pod, which the pod owns; a claim that no pod uses any more is
deallocated and, where it was made for a pod, deleted. The garbage collector's part is here too:
claims of pods that are gone. Followed is pkg/controller/resourceclaim of Kubernetes 1.37, without
pod groups.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpumanager.sim.claims.pod_claims import (
    allocation_of,
    claim_name,
    consumer,
    consumers,
    is_done,
    is_reserved_for,
    owner,
)
from gpumanager.sim.claims.writes import (
    PROTECTED,
    ObjectWrite,
    random_suffix,
    with_finalizers,
    with_status,
)
from gpumanager.sim.cluster.resource_rules import CONSUMERS

Object = Mapping[str, Any]
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
LONGEST_BASE: Final = 57
"""Letters of a generated name before its last five and their hyphen."""


def claim_writes(
    pods: Sequence[Object],
    claims: Sequence[Object],
    templates: Sequence[Object],
    suffix: Callable[[], str] = random_suffix,
) -> list[ObjectWrite]:
    """Return what is to be written now; nothing where all is as it should be.

    suffix: five characters that a generated name ends with.
    """
    by_name = {_full_name(one): one for one in templates}
    found = {_full_name(one): one for one in claims}
    writes: list[ObjectWrite] = []
    for pod in pods:
        if not pod["metadata"].get("deletionTimestamp") and not is_done(pod):
            writes += _pod_writes(pod, found, by_name, suffix)
    known = {_full_name(one): one for one in pods}
    for claim in claims:
        writes += _claim_writes(claim, known)
    return writes


def _full_name(item: Object) -> tuple[str, str]:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _pod_writes(
    pod: Object,
    claims: Mapping[tuple[str, str], Object],
    templates: Mapping[tuple[str, str], Object],
    suffix: Callable[[], str],
) -> Iterator[ObjectWrite]:
    namespace, _ = _full_name(pod)
    made: dict[str, str] = {}
    spec, mine = pod.get("spec") or {}, (pod["metadata"]["name"], pod["metadata"]["uid"])
    for used in spec.get("resourceClaims") or ():
        name = claim_name(pod, used)
        claim = claims.get((namespace, name or ""))
        if claim is None and "resourceClaimTemplateName" in used:
            # It may have been made before, though the pod's status does not say so yet.
            for one in claims.values():
                notes = one["metadata"].get("annotations") or {}
                if owner(one) == mine and notes.get(POD_CLAIM) == used["name"]:
                    claim = one
                    break
            template = templates.get((namespace, used["resourceClaimTemplateName"]))
            if claim is None and template is not None:
                claim = _claim_from_template(pod, used["name"], template, suffix())
                yield ObjectWrite("create", "resourceclaims", claim)
            if claim is not None:
                made[used["name"]] = claim["metadata"]["name"]
        elif (
            # A pod that was given its node by its maker, not by a scheduler, uses an allocated
            # claim.
            spec.get("nodeName")
            and claim is not None
            and allocation_of(claim) is not None
            and len(consumers(claim)) < CONSUMERS
            and not is_reserved_for(claim, pod)
        ):
            reserved = [*consumers(claim), consumer(pod)]
            yield ObjectWrite(
                "update_status", "resourceclaims", with_status(claim, reservedFor=reserved)
            )
    if made:
        known = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
        names = {one["name"]: one.get("resourceClaimName") for one in known} | made
        statuses = [{"name": one, "resourceClaimName": names[one]} for one in sorted(names)]
        yield ObjectWrite("update_status", "pods", with_status(pod, resourceClaimStatuses=statuses))


def _claim_from_template(pod: Object, name: str, template: Object, suffix: str) -> Object:
    """Return the claim, named after pod and claim, each shortened in proportion if too long."""
    metadata, spec = pod["metadata"], template["spec"]
    base, length = f"{metadata['name']}-{name}-", len(f"{metadata['name']}-{name}-")
    if length > LONGEST_BASE:
        first = metadata["name"][: len(metadata["name"]) * LONGEST_BASE // length]
        base = f"{first}-{name[: len(name) * LONGEST_BASE // length]}"
    owned = {"apiVersion": "v1", "kind": "Pod", "controller": True}
    given = spec.get("metadata") or {}
    return {
        "metadata": {
            "name": base + suffix,
            "namespace": metadata.get("namespace", ""),
            "ownerReferences": [{**owned, "name": metadata["name"], "uid": metadata["uid"]}],
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM: name},
            **({"labels": given["labels"]} if given.get("labels") else {}),
        },
        "spec": spec["spec"],
    }


def _claim_writes(claim: Object, pods: Mapping[tuple[str, str], Object]) -> Iterator[ObjectWrite]:
    """Release what no pod uses any more: allocation, finalizer, and a generated claim itself."""
    namespace = claim["metadata"].get("namespace", "")
    before = consumers(claim)
    remaining = []
    for one in before:
        pod = pods.get((namespace, one["name"]))
        # Those that are no pods are not ours to judge.
        if (one.get("apiGroup") or one["resource"] != "pods") or (
            pod is not None and pod["metadata"]["uid"] == one["uid"] and not is_done(pod)
        ):
            remaining.append(one)
    finalizers = list(claim["metadata"].get("finalizers") or ())
    deleted = bool(claim["metadata"].get("deletionTimestamp"))
    unprotected = [one for one in finalizers if one != PROTECTED]
    released = claim
    if len(remaining) < len(before) or (deleted and not remaining and allocation_of(claim)):
        released = with_status(claim, reservedFor=remaining or None)
        if not remaining:
            released = with_status(released, allocation=None)
        yield ObjectWrite("update_status", "resourceclaims", released)
    freed = allocation_of(released) is None and (deleted or len(remaining) < len(before))
    if freed and unprotected != finalizers:
        released = with_finalizers(released, unprotected)
        yield ObjectWrite("update", "resourceclaims", released)
    of_pod = owner(claim)
    if of_pod and not remaining and not deleted:
        pod = pods.get((namespace, of_pod[0]))
        if pod is None or pod["metadata"]["uid"] != of_pod[1] or is_done(pod):
            yield ObjectWrite("delete", "resourceclaims", claim)

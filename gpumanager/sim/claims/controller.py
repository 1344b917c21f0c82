"""What kube-controller-manager does about claims: make them from templates, release, delete them.

A claim from a template is a pod's own; a claim that no pod uses any more is deallocated and, where
it was made for a pod, deleted. The garbage collector's part is here too: claims of pods that are
gone.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpumanager.sim.claims.scheduler import PROTECTED, random_suffix
from gpumanager.sim.cluster.objects import FINAL_PHASES, Key, Objects
from gpumanager.sim.cluster.patch import MERGE

Object = Mapping[str, Any]
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"


def key_of(resource: str, item: Object) -> Key:
    metadata = item["metadata"]
    return Key(resource, metadata.get("namespace", ""), metadata["name"])


def is_done(pod: Object) -> bool:
    """Return whether it will not run any more: has ended, or was deleted before it had a node."""
    ended = (pod.get("status") or {}).get("phase") in FINAL_PHASES
    bound = (pod.get("spec") or {}).get("nodeName")
    return ended or bool(pod["metadata"].get("deletionTimestamp") and not bound)


def make_claims(objects: Objects) -> None:
    """Make those that pods lack and a template describes, and say so in the pods' status."""
    for pod in list(objects.list("pods")):
        if pod["metadata"].get("deletionTimestamp") or is_done(pod):
            continue
        known = list((pod.get("status") or {}).get("resourceClaimStatuses") or ())
        made = []
        for used in (pod.get("spec") or {}).get("resourceClaims") or ():
            namespace, source = (
                pod["metadata"].get("namespace", ""),
                used.get("resourceClaimTemplateName", ""),
            )
            template = objects.rows.get(Key("resourceclaimtemplates", namespace, source))
            if template is not None and used["name"] not in {one["name"] for one in known}:
                claim = _claim_from_template(pod, used["name"], template["spec"])
                objects.create(key_of("resourceclaims", claim), claim)
                row = {"name": used["name"], "resourceClaimName": claim["metadata"]["name"]}
                made.append(row)
        if made:
            status = {"resourceClaimStatuses": [*known, *made]}
            objects.patch(key_of("pods", pod), MERGE, {"status": status}, status=True)


def _claim_from_template(pod: Object, name: str, template: Object) -> Object:
    metadata, given = pod["metadata"], template.get("metadata") or {}
    owned = {"apiVersion": "v1", "kind": "Pod", "controller": True}
    return {
        "metadata": {
            **given,
            "name": f"{metadata['name']}-{name}-"[:57] + random_suffix(),
            "namespace": metadata.get("namespace", ""),
            "ownerReferences": [{**owned, "name": metadata["name"], "uid": metadata["uid"]}],
            "annotations": {**(given.get("annotations") or {}), POD_CLAIM: name},
        },
        "spec": template["spec"],
    }


def release_claims(objects: Objects) -> None:
    """Release what no pod uses any more: allocation, finalizer, and a generated claim itself."""
    active = {one["metadata"]["uid"] for one in objects.list("pods") if not is_done(one)}
    for claim in list(objects.list("resourceclaims")):
        key, reserved = (
            key_of("resourceclaims", claim),
            (claim.get("status") or {}).get("reservedFor") or [],
        )
        users = [one for one in reserved if one["uid"] in active]
        owners = [one["uid"] for one in claim["metadata"].get("ownerReferences") or ()]
        deleted = bool(claim["metadata"].get("deletionTimestamp"))
        if owners and not active.intersection(owners) and not users and not deleted:
            objects.delete(key, {})
            deleted = True
        if key in objects.rows and (users != reserved or (deleted and not users)):
            status = {"reservedFor": users} if users else {"reservedFor": None, "allocation": None}
            objects.patch(key, MERGE, {"status": status}, status=True)
            if not users:
                others = [
                    one for one in claim["metadata"].get("finalizers") or () if one != PROTECTED
                ]
                objects.patch(key, MERGE, {"metadata": {"finalizers": others}})

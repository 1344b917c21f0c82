"""Which claims a pod uses. Pure."""

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]


def claim_name(pod: Object, used: Object) -> str | None:
    """Return the claim of a row of `resourceClaims`; None before one is made by its template."""
    if name := used.get("resourceClaimName"):
        return str(name)
    made = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return next((one.get("resourceClaimName") for one in made if one["name"] == used["name"]), None)


def owner(claim: Object) -> tuple[str, str] | None:
    """Return name and UID of the pod that the claim was made for; None for a user's own."""
    for one in claim["metadata"].get("ownerReferences") or ():
        if one.get("controller") and one["kind"] == "Pod":
            return one["name"], one["uid"]
    return None


def consumer(pod: Object) -> dict[str, str]:
    """Return the pod as an entry of `status.reservedFor`."""
    metadata = pod["metadata"]
    return {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}


def consumers(claim: Object) -> list[Object]:
    return list((claim.get("status") or {}).get("reservedFor") or ())


def is_reserved_for(claim: Object, pod: Object) -> bool:
    return any(one["uid"] == pod["metadata"]["uid"] for one in consumers(claim))


def allocation_of(claim: Object) -> Object | None:
    return (claim.get("status") or {}).get("allocation")


def is_done(pod: Object) -> bool:
    """Return whether it will not run any more: has ended, or was deleted before it had a node."""
    ended = (pod.get("status") or {}).get("phase") in {"Failed", "Succeeded"}
    bound = (pod.get("spec") or {}).get("nodeName")
    return ended or bool(pod["metadata"].get("deletionTimestamp") and not bound)

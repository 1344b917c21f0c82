"""The claim that kube-scheduler makes for extended resources that a class names. Pure.

A pod asks for `tencent.com/gpu: 2` and names no claim. Where a DeviceClass has that name, the
scheduler makes a claim for the pod, with a request for each container, and says in the pod's status
which container has which. Not simulated: nodes that have a device plugin for the same resource.
"""

import secrets
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final

from gpumanager.kube.errors import Object
from gpumanager.kube.quantity import whole_number

ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Before a class's name: every class is an extended resource by that."""


def extended_claim(pod: Object, classes: Sequence[Object]) -> tuple[Object, Object] | None:
    """Make the claim, and the pod's status; None where it requests no resource of a class."""
    known = {IMPLICIT + one["metadata"]["name"]: one["metadata"]["name"] for one in classes}
    for one in classes:
        if name := (one.get("spec") or {}).get("extendedResourceName"):
            known[name] = one["metadata"]["name"]
    asked = {name for one in _containers(pod) for name, count in _asked(one).items() if count}
    requests, mappings = list[dict[str, Any]](), list[dict[str, str]]()
    for resource in sorted(asked & known.keys()):
        counts, rows = _requests(pod, resource)
        requests += [
            {"name": name, "exactly": {"deviceClassName": known[resource], "count": count}}
            for name, count in counts.items()
        ]
        mappings += rows
    if not requests:
        return None
    metadata = pod["metadata"]
    name = f"{metadata['name']}-extended-resources-"[:58] + secrets.token_hex(3)[:5]
    owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
    claim = {
        "metadata": {
            "name": name,
            "namespace": metadata.get("namespace", ""),
            "ownerReferences": [{**owner, "name": metadata["name"], "uid": metadata["uid"]}],
            "annotations": {ANNOTATION: "true"},
        },
        "spec": {"devices": {"requests": sorted(requests, key=itemgetter("name"))}},
    }
    told = {"requestMappings": mappings, "resourceClaimName": name}
    return claim, {"extendedResourceClaimStatus": told}


def _requests(pod: Object, resource: str) -> tuple[dict[str, int], list[dict[str, str]]]:
    """Return so many devices by request, one for each container that runs on, and what containers
    use.

    Init containers that end use later containers' devices first, and share the largest of what they
    need besides.
    """
    init = len((pod.get("spec") or {}).get("initContainers") or ())
    lasting = dict[int, tuple[str, int]]()
    ending = list[tuple[int, str, str, int]]()
    mappings = list[dict[str, str]]()
    for place, one in enumerate(_containers(pod)):
        if count := _asked(one).get(resource, 0):
            name = f"container-{place}-request-{sorted(_asked(one)).index(resource)}"
            if place < init and one.get("restartPolicy") != "Always":
                ending.append((place, one["name"], name, count))
            else:
                lasting[place] = name, count
                mappings.append({"containerName": one["name"], "requestName": name})
    alone = dict[str, int]()
    for place, container, own, count in ending:
        missing = count
        for later, (name, has) in lasting.items():
            if later > place and missing > 0:
                missing -= has
                mappings.append({"containerName": container, "requestName": name})
        if missing > 0:
            alone[own] = missing
            mappings.append({"containerName": container, "requestName": own})
    largest = max(alone, key=lambda name: alone[name], default="")
    rows = [
        {**row, "resourceName": resource}
        | ({"requestName": largest} if row["requestName"] in alone else {})
        for row in mappings
    ]
    return dict(lasting.values()) | ({largest: alone[largest]} if largest else {}), rows


def _containers(pod: Object) -> list[Object]:
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _asked(container: Object) -> dict[str, int]:
    """Return its requests; the API server makes them of the limits."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: whole_number(amount) or 0 for name, amount in asked.items()}

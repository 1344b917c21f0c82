"""The claim that kube-scheduler makes for extended resources that a class names. Pure.

A pod asks for `tencent.com/gpu: 2` and names no claim. Where a DeviceClass has that name and the
node has no device plugin for it, the scheduler makes a claim for the pod, with a request for each
container, and says in the pod's status which container has which. Followed is
extendeddynamicresources.go of Kubernetes 1.37.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.kube.quantity import whole_number
from gpumanager.sim.claims.pod_claims import owner

Object = Mapping[str, Any]
ANNOTATION: Final = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""Before a class's name: every class is an extended resource by that."""
TEMPORARY: Final = "<extended-resources>"
"""The claim's UID while there is none."""
LONGEST_BASE: Final = 58
"""Letters of a generated name before its last five."""


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """claim: as it is to be made. mappings: for the pod's status."""

    claim: Object
    mappings: Sequence[Object]


def extended_resources(pod: Object, classes: Sequence[Object]) -> dict[str, str]:
    """Return those that the pod requests and a class has: the class's name by the resource's."""
    known = {IMPLICIT + one["metadata"]["name"]: one["metadata"]["name"] for one in classes}
    for one in sorted(classes, key=lambda one: one["metadata"].get("creationTimestamp", "")):
        if name := (one.get("spec") or {}).get("extendedResourceName"):
            known[name] = one["metadata"]["name"]
    asked = {name for one in _containers(pod) for name, count in _asked(one).items() if count}
    return {name: known[name] for name in sorted(asked & known.keys())}


def extended_claim_of(pod: Object, claims: Sequence[Object]) -> Object | None:
    """Return the claim that was made for the pod already."""
    mine = (pod["metadata"]["name"], pod["metadata"]["uid"])
    for claim in claims:
        notes = claim["metadata"].get("annotations") or {}
        if notes.get(ANNOTATION) == "true" and owner(claim) == mine:
            return claim
    return None


def extended_claim(
    pod: Object, node: Object, resources: Mapping[str, str], suffix: str
) -> ExtendedClaim | None:
    """Make the claim, None where the node has device plugins for all. suffix: of its name."""
    by_plugin = (node.get("status") or {}).get("allocatable") or {}
    wanted = {name: of for name, of in resources.items() if not whole_number(by_plugin.get(name))}
    if not wanted:
        return None
    requests, mappings = list[Object](), list[Object]()
    for name, device_class in wanted.items():
        made, rows = _requests(pod, name, device_class)
        requests += made
        mappings += rows
    metadata = pod["metadata"]
    owned = {"apiVersion": "v1", "kind": "Pod", "controller": True}
    base = f"{metadata['name']}-extended-resources-"[:LONGEST_BASE]
    claim = {
        "metadata": {
            "name": base + suffix,
            "namespace": metadata.get("namespace", ""),
            "ownerReferences": [{**owned, "name": metadata["name"], "uid": metadata["uid"]}],
            "annotations": {ANNOTATION: "true"},
        },
        "spec": {"devices": {"requests": sorted(requests, key=lambda one: str(one["name"]))}},
    }
    return ExtendedClaim(claim, mappings)


def _requests(
    pod: Object, resource: str, device_class: str
) -> tuple[list[Object], list[dict[str, str]]]:
    """Make a request for each container that runs on. Those that end before use later ones' first,
    and share the largest of what they need besides."""
    init = len((pod.get("spec") or {}).get("initContainers") or ())
    lasting: dict[int, Object] = {}
    mappings: list[dict[str, str]] = []
    ending: list[tuple[int, Object]] = []
    for place, one in enumerate(_containers(pod)):
        if place < init and one.get("restartPolicy") != "Always":
            ending.append((place, one))
            continue
        own, rows = _request(place, one, resource, device_class)
        lasting |= {place: own} if own else {}
        mappings += rows
    alone: list[Object] = []
    rest: list[dict[str, str]] = []
    for place, one in ending:
        later = [each for at, each in lasting.items() if at > place]
        own, rows = _request(place, one, resource, device_class, later)
        alone += [own] if own else []
        rest += rows
    largest = max(alone, key=lambda one: int(one["exactly"]["count"]), default=None)
    names = {one["name"] for one in alone}
    for row in rest:
        if largest and row["requestName"] in names:
            row["requestName"] = largest["name"]
    return [*lasting.values(), *([largest] if largest else [])], mappings + rest


def _request(
    place: int, container: Object, resource: str, device_class: str, reuse: Sequence[Object] = ()
) -> tuple[Object | None, list[dict[str, str]]]:
    """Return what it needs beside the requests that it may reuse, and a row for each it has."""
    missing = _asked(container).get(resource, 0)
    used: list[Object] = []
    for one in reuse:
        if missing > 0:
            missing -= one["exactly"]["count"]
            used.append(one)
    own: Object | None = None
    if missing > 0:
        exactly = {
            "deviceClassName": device_class,
            "allocationMode": "ExactCount",
            "count": missing,
        }
        index = sorted(_resources(container)).index(resource)
        own = {"name": f"container-{place}-request-{index}", "exactly": exactly}
        used.append(own)
    row = {"containerName": container["name"], "resourceName": resource}
    return own, [{**row, "requestName": one["name"]} for one in used]


def _containers(pod: Object) -> list[Object]:
    spec = pod.get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _resources(container: Object) -> Mapping[str, Any]:
    """Return its requests; the API server makes them of the limits."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _asked(container: Object) -> dict[str, int]:
    return {name: whole_number(amount) or 0 for name, amount in _resources(container).items()}

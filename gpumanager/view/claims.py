"""What the API server says of ResourceClaims, in sentences. Pure.

pod, claim: objects of the Kubernetes API, as JSON has them. A claim may have requests of several
drivers; what is said of one's devices holds for all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.units import count_of
from gpumanager.view.metrics import printable

Object = Mapping[str, Any]
MOST_EXPRESSION: Final = 100
"""Letters of a selector that are shown."""


@dataclass(frozen=True, slots=True)
class UsedClaim:
    """One entry of a pod's `resourceClaims`. claim: None where it is not there. template: its name,
    where the claim comes of one, and whether that is there.
    """

    name: str
    claim: Object | None
    claim_name: str = ""
    template: str = ""
    template_exists: bool = True


def claims_of_pod(pod: Object, claims: Sequence[UsedClaim]) -> tuple[str, ...]:
    """Which container uses which claim, and what is wrong with those."""
    return tuple(printable(line) for line in _of_pod(pod, claims))


def claim_sentences(claim: Object, slices: Sequence[Object]) -> tuple[str, ...]:
    """What was asked and allocated. slices: where its devices are described, if at hand."""
    return tuple(printable(line) for line in _claim(claim, slices))


def _of_pod(pod: Object, claims: Sequence[UsedClaim]) -> Iterator[str]:
    spec = pod.get("spec") or {}
    names = {one.name: one.claim_name or f"of template {one.template}" for one in claims}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for used in (container.get("resources") or {}).get("claims") or ():
            request = f"request {used['request']}" if used.get("request") else "all its requests"
            claim = names.get(used["name"], used["name"])
            yield f"Container {container['name']} uses claim {claim} ({request})."
    for one in claims:
        if one.claim is not None:
            continue
        if not one.template_exists:
            yield (
                f"ResourceClaimTemplate {one.template} does not exist in the pod's namespace: the "
                "pod waits until somebody creates it."
            )
        elif one.template:
            yield (
                f"No claim was made of template {one.template} yet: kube-controller-manager makes "
                "it; events of the pod say what keeps it from that, such as a quota."
            )
        else:
            yield (
                f"ResourceClaim {one.claim_name} does not exist in the pod's namespace: the pod "
                "waits until somebody creates it."
            )
    yield from _health(pod)


def _health(pod: Object) -> Iterator[str]:
    """As the kubelet puts it into the pod's status."""
    status = pod.get("status") or {}
    for container in status.get("containerStatuses") or ():
        for one in container.get("allocatedResourcesStatus") or ():
            for device in one.get("resources") or ():
                health = device.get("health", "Unknown")
                message = f": {device['message']}" if device.get("message") else ""
                if health != "Healthy":
                    yield f"Container {container['name']}: {one['name']} is {health}{message}."


def _claim(claim: Object, slices: Sequence[Object]) -> Iterator[str]:
    if (claim.get("metadata") or {}).get("deletionTimestamp"):
        yield "It is being deleted, and goes when no pod uses it any more."
    devices = (claim.get("spec") or {}).get("devices") or {}
    for one in devices.get("requests") or ():
        yield from _request(one)
    for one in devices.get("constraints") or ():
        same = "the same" if one.get("matchAttribute") else "different"
        attribute = one.get("matchAttribute") or one.get("distinctAttribute")
        among = ", ".join(one.get("requests") or ()) or "all requests"
        yield f"The devices of {among} must have {same} {attribute}."
    yield from _allocation(claim, slices)


def _request(request: Object) -> Iterator[str]:
    name = request.get("name")
    if request.get("exactly"):
        yield f"Request {name} asks for {_asked(request['exactly'])}."
        return
    tried = request.get("firstAvailable") or ()
    each = "; else ".join(f"{_asked(one)} ({one.get('name')})" for one in tried)
    yield f"Request {name} asks for {each}."


def _asked(item: Object) -> str:
    every = item.get("allocationMode") == "All"
    count = "all devices" if every else count_of(int(item.get("count") or 1), "device")
    amounts = (item.get("capacity") or {}).get("requests") or {}
    much = ", ".join(f"{name} {value}" for name, value in amounts.items()) or "all of each"
    access = "admin access to " if item.get("adminAccess") else ""
    found = f"{access}{count} of class {item.get('deviceClassName')}: {much}"
    for one in item.get("selectors") or ():
        expression = " ".join(str((one.get("cel") or {}).get("expression")).split())
        cut = "…" if len(expression) > MOST_EXPRESSION else ""
        found += f", where {expression[:MOST_EXPRESSION]}{cut}"
    return found


def _allocation(claim: Object, slices: Sequence[Object]) -> Iterator[str]:
    status = claim.get("status") or {}
    allocation = status.get("allocation")
    if allocation is None:
        yield "It is not allocated: kube-scheduler does that for the first pod that uses it."
        return
    known = {
        (one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"]): device
        for one in slices
        for device in one["spec"].get("devices") or ()
    }
    for one in (allocation.get("devices") or {}).get("results") or ():
        device = known.get((one["driver"], one["pool"], one["device"]))
        yield f"Request {one['request']} was allocated {_allocated(one, device)}."
        taints = (device or {}).get("taints") or ()
        if taints:
            names = ", ".join(f"{each.get('key')}:{each.get('effect')}" for each in taints)
            yield f"{one['device']} is tainted: {names}."
    pods = [str(one.get("name")) for one in status.get("reservedFor") or ()]
    yield f"It is in use by {', '.join(pods)}." if pods else "No pod uses it now."


def _allocated(result: Object, device: Object | None) -> str:
    """`gpu-1a2b (Tesla T4, GPU-…) on node n1: cores 30, memory 2Gi`."""
    attributes = (device or {}).get("attributes") or {}
    told = (attributes.get(name, {}).get("string") for name in ("productName", "uuid"))
    known = ", ".join(filter(None, told))
    consumed = result.get("consumedCapacity") or {}
    much = ", ".join(f"{name} {value}" for name, value in consumed.items()) or "all of it"
    much = "admin access" if result.get("adminAccess") else much
    return f"{result['device']}{f' ({known})' if known else ''} of pool {result['pool']}: {much}"

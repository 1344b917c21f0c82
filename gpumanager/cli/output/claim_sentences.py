"""What the API server says of ResourceClaims, in sentences. Pure.

pod, claim: objects of the Kubernetes API, as JSON has them. A claim may have requests of several
drivers; what is said of one's devices holds for all.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpumanager.kube.claims import (
    OfferedGpu,
    RequestedDevices,
    is_allocated,
    list_requests,
    list_results,
    list_users,
    read_slice,
    requested,
)
from gpumanager.kube.errors import Object
from gpumanager.names import CLAIM_DRIVER
from gpumanager.units import count_of
from gpumanager.view.metrics import printable

SELECTOR_LETTERS: Final = 100
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
    for name, alternatives in list_requests(claim).items():
        yield f"Request {name} asks for {'; else '.join(map(_asked, alternatives))}."
    for one in requested(claim).get("constraints") or ():
        same = "the same" if one.get("matchAttribute") else "different"
        attribute = one.get("matchAttribute") or one.get("distinctAttribute")
        among = ", ".join(one.get("requests") or ()) or "all requests"
        yield f"The devices of {among} must have {same} {attribute}."
    if not is_allocated(claim):
        yield "It is not allocated: kube-scheduler does that for the first pod that uses it."
        return
    offered = (gpu for one in map(read_slice, slices) if one for gpu in one.gpus)
    known = {(CLAIM_DRIVER, one.node, one.name): one for one in offered}
    for one in list_results(claim):
        gpu = known.get((one["driver"], one["pool"], one["device"]))
        yield f"Request {one['request']} was allocated {_allocated(one, gpu)}."
        if gpu and gpu.taints:
            names = ", ".join(f"{each.get('key')}:{each.get('effect')}" for each in gpu.taints)
            yield f"{gpu.name} is tainted: {names}."
    pods = ", ".join(one.name for one in list_users(claim))
    yield f"It is in use by {pods}." if pods else "No pod uses it now."


def _asked(one: RequestedDevices) -> str:
    """`2 devices of class gpu: cores 10, memory 1Gi, where …`, and the name of an alternative."""
    count = "all devices" if one.count is None else count_of(one.count, "device")
    access = "admin access to " if one.admin else ""
    found = f"{access}{count} of class {one.device_class}: {_listed(one.amounts, 'all of each')}"
    for selector in one.selectors:
        expression = " ".join(selector.split())
        cut = "…" if len(expression) > SELECTOR_LETTERS else ""
        found += f", where {expression[:SELECTOR_LETTERS]}{cut}"
    alternative = one.name.partition("/")[2]
    return f"{found} ({alternative})" if alternative else found


def _allocated(result: Object, gpu: OfferedGpu | None) -> str:
    """`gpu-1a2b (Tesla T4, GPU-…) of pool n1: cores 30, memory 2Gi`."""
    known = ", ".join(filter(None, (gpu.model, gpu.uuid))) if gpu else ""
    much = _listed((result.get("consumedCapacity") or {}).items(), "all of it")
    much = "admin access" if result.get("adminAccess") else much
    return f"{result['device']}{f' ({known})' if known else ''} of pool {result['pool']}: {much}"


def _listed(amounts: Iterable[tuple[str, str]], otherwise: str) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts) or otherwise

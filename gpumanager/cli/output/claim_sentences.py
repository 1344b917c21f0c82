"""What the API server says of ResourceClaims, in sentences. Pure.

pod, claim: objects of the Kubernetes API, as JSON has them. A claim may have requests of several
drivers; what is said of one's devices holds for all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from gpumanager.kube.claims import (
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
from gpumanager.view.node import printable

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
    """Return which container uses which claim, and what is wrong with those."""
    lines, spec = [], pod.get("spec") or {}
    names = {one.name: one.claim_name or f"of template {one.template}" for one in claims}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        for used in (container.get("resources") or {}).get("claims") or ():
            request = f"request {used['request']}" if used.get("request") else "all its requests"
            claim = names.get(used["name"], used["name"])
            lines.append(f"Container {container['name']} uses claim {claim} ({request}).")
    for one in claims:
        if one.claim is not None:
            continue
        if not one.template_exists:
            lines.append(
                f"ResourceClaimTemplate {one.template} does not exist in the pod's namespace: the "
                "pod waits until somebody creates it."
            )
        elif one.template:
            lines.append(
                f"No claim was made of template {one.template} yet: kube-controller-manager makes "
                "it; events of the pod say what keeps it from that, such as a quota."
            )
        else:
            lines.append(
                f"ResourceClaim {one.claim_name} does not exist in the pod's namespace: the pod "
                "waits until somebody creates it."
            )
    lines += [
        f"Container {container['name']}: {resource['name']} is {health}"
        + (f": {device['message']}." if device.get("message") else ".")
        for container in (pod.get("status") or {}).get("containerStatuses") or ()
        for resource in container.get("allocatedResourcesStatus") or ()
        for device in resource.get("resources") or ()
        if (health := device.get("health", "Unknown")) != "Healthy"
    ]
    return tuple(map(printable, lines))


def claim_sentences(claim: Object, slices: Sequence[Object]) -> tuple[str, ...]:
    """Return what was asked and allocated. slices: where its devices are described, if at hand."""
    lines = []
    if (claim.get("metadata") or {}).get("deletionTimestamp"):
        lines.append("It is being deleted, and goes when no pod uses it any more.")
    for name, alternatives in list_requests(claim).items():
        asked = []
        for one in alternatives:
            # `2 devices of class gpu: cores 10, memory 1Gi, where … (alternative)`
            count = "all devices" if one.count is None else count_of(one.count, "device")
            access = "admin access to " if one.admin else ""
            what = f"{access}{count} of class {one.device_class}: "
            what += _listed(one.amounts, "all of each")
            for expression in (" ".join(selector.split()) for selector in one.selectors):
                cut = "…" if len(expression) > SELECTOR_LETTERS else ""
                what += f", where {expression[:SELECTOR_LETTERS]}{cut}"
            alternative = one.name.partition("/")[2]
            asked.append(f"{what} ({alternative})" if alternative else what)
        lines.append(f"Request {name} asks for {'; else '.join(asked)}.")
    for rule in requested(claim).get("constraints") or ():
        same = "the same" if rule.get("matchAttribute") else "different"
        attribute = rule.get("matchAttribute") or rule.get("distinctAttribute")
        among = ", ".join(rule.get("requests") or ()) or "all requests"
        lines.append(f"The devices of {among} must have {same} {attribute}.")
    if not is_allocated(claim):
        lines.append(
            "It is not allocated: kube-scheduler does that for the first pod that uses it."
        )
        return tuple(map(printable, lines))
    offered = (gpu for one in map(read_slice, slices) if one for gpu in one.gpus)
    described = {(CLAIM_DRIVER, one.node, one.name): one for one in offered}
    for result in list_results(claim):
        # `gpu-1a2b (Tesla T4, GPU-…) of pool n1: cores 30, memory 2Gi`
        gpu = described.get((result["driver"], result["pool"], result["device"]))
        known = ", ".join(filter(None, (gpu.model, gpu.uuid))) if gpu else ""
        much = _listed((result.get("consumedCapacity") or {}).items(), "all of it")
        much = "admin access" if result.get("adminAccess") else much
        device = f"{result['device']} ({known})" if known else result["device"]
        what = f"{device} of pool {result['pool']}: {much}"
        lines.append(f"Request {result['request']} was allocated {what}.")
        if gpu and gpu.taints:
            names = ", ".join(f"{each.get('key')}:{each.get('effect')}" for each in gpu.taints)
            lines.append(f"{gpu.name} is tainted: {names}.")
    pods = ", ".join(one.name for one in list_users(claim))
    lines.append(f"It is in use by {pods}." if pods else "No pod uses it now.")
    return tuple(map(printable, lines))


def _listed(amounts: Iterable[tuple[str, str]], otherwise: str) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in amounts) or otherwise

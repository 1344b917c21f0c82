"""How a pod with GPUs is changed before it is stored. Pure.

Each rule checks the pod and adds what is missing. A complete pod is not changed, so the patch is
idempotent.

A pod with vcuda-core and vcuda-memory may become one with a claim. Each container with GPUs names
one request of it. An init container uses the request of a later container if that is large enough,
just as the kubelet reuses device IDs. A sidecar that runs beside it keeps its own. The API server
asks again where a later webhook has changed the pod: a container that it added joins the claim.
"""

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from gpumanager.kube.pod import LISTS, ContainerKind, kind_of
from gpumanager.names import (
    ANNOTATION_CLAIM,
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_PREDICATE_TIME,
    LABEL_CLAIM_TEMPLATE,
    VCORE,
    VMEMORY,
)
from gpumanager.scheduler.claims.template import ClaimShape, RequestShape, read_shape
from gpumanager.scheduler.webhook.asks import (
    RESOURCES,
    ContainerAmounts,
    annotations,
    read_asks,
)
from gpumanager.scheduler.webhook.nodes import NodeKind, smallest_gpu
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, DefaultMemory
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, format_bytes

STALE: Final = (
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_TIME,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_GPU_ASSIGNED,
)
"""What a scheduler writes, or how that begins: a pod that is just made has been to none."""

CLAIM: Final = "vcuda"
"""What a pod calls its claim."""
TAKEN: Final = (
    f"spec.resourceClaims: {CLAIM} is the name of the claim that {' and '.join(RESOURCES)} become; "
    "give this claim another name"
)
UNNAMED: Final = ("", None, "default-scheduler")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def mutate(
    pod: Any, policy: AdmissionPolicy, nodes: Collection[NodeKind] = (), *, claims: bool = False
) -> tuple[Any, Sequence[str]]:
    """Return a new pod as it should be, and what its author should know of that; the pod itself
    where it asks for no GPU. claims: it is to be scheduled by a claim, made of its memory too."""
    asks, notes = read_asks(pod), list[str]()
    if not asks:
        return pod, ()
    pod = copy.deepcopy(pod)
    spec, wanted, found = pod["spec"], policy.scheduler_name, annotations(pod)
    if stale := [key for key in found if key.startswith(STALE)]:
        pod["metadata"]["annotations"] = {key: found[key] for key in found if key not in stale}
    if not claims and wanted not in UNNAMED and spec.get("schedulerName") in UNNAMED:
        spec["schedulerName"] = wanted
    if policy.pin and (node := spec.get("nodeName")):
        _pin(spec, node)
        notes.append(
            f"spec.nodeName became a node affinity for {node}: the scheduler has to count its GPUs"
        )
    asked = {key for ask in asks for key, amount in ask.amounts.items() if amount.number != 0}
    for ask, blocks in _without_memory(asks, policy, nodes):
        asked.add(VMEMORY)
        resources = spec[ask.field][ask.place]["resources"]
        # Of an extended resource, limit and request are the same.
        for part in ("limits", "requests"):
            resources[part] = {**(resources.get(part) or {}), VMEMORY: str(blocks)}
        resources["limits"].setdefault(VCORE, ask.amounts[VCORE].written)
        size = format_bytes(blocks * MEMORY_BLOCK)
        notes.append(f"{ask.where} names no {VMEMORY}: it gets {blocks} ({size})")
    there = spec.get("tolerations") or []
    missing = [
        {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        for key in RESOURCES
        if key in asked and not any(_tolerates(one, key) for one in there)
    ]
    if missing:
        spec["tolerations"] = [*there, *missing]
    return pod, notes


def _pin(spec: Any, node: str) -> None:
    """Replace the node of a pinned pod by an affinity, in each term there is: terms are
    alternatives."""
    del spec["nodeName"]
    spec["affinity"] = affinity = spec.get("affinity") or {}
    affinity["nodeAffinity"] = near = affinity.get("nodeAffinity") or {}
    near[REQUIRED] = required = near.get(REQUIRED) or {}
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    required["nodeSelectorTerms"] = terms = required.get("nodeSelectorTerms") or [
        {"matchFields": [pin]}
    ]
    for term in terms:
        fields = term.get("matchFields") or []
        # A term without any condition matches no node, and is left so.
        if pin not in fields and (fields or term.get("matchExpressions")):
            term["matchFields"] = [*fields, pin]


def _tolerates(toleration: Any, key: str) -> bool:
    """Return whether it tolerates any value of the taint, as `Exists` does; no key means all."""
    return (
        toleration.get("operator") == "Exists"
        and toleration.get("key") in (key, "", None)
        and toleration.get("effect") in ("NoSchedule", "", None)
    )


def _without_memory(
    asks: Collection[ContainerAmounts], policy: AdmissionPolicy, nodes: Collection[NodeKind]
) -> Iterator[tuple[ContainerAmounts, int]]:
    """Yield shares that name no memory, and the blocks that the policy gives them."""
    rule = policy.default_memory
    for ask in asks:
        request = ask.request
        if request is None or not 0 < request.cores < CORES_PER_GPU or request.blocks:
            continue
        blocks = rule if isinstance(rule, int) else 0
        if rule is DefaultMemory.SHARE and (smallest := smallest_gpu(nodes)):
            blocks = max(1, smallest * request.cores // CORES_PER_GPU)
        if blocks:
            yield ask, blocks


def earlier_claim(pod: Any) -> ClaimShape | None:
    """Return the claim that an earlier call of the webhook gave to this pod, if one did. Raises
    ValueError where the claim of that name is another one."""
    there = pod["spec"].get("resourceClaims") or ()
    named = [one for one in there if one.get("name") == CLAIM]
    if not named:
        return None
    try:
        shape = read_shape(str(annotations(pod).get(ANNOTATION_CLAIM, "")))
    except ValueError:
        raise ValueError(TAKEN) from None
    if [one.get("resourceClaimTemplateName") for one in named] != [shape.name]:
        raise ValueError(TAKEN)
    return shape


def shape_of(
    pod: Any,
    asks: Collection[ContainerAmounts],
    earlier: ClaimShape | None,
    *,
    tiers: bool = False,
) -> tuple[ClaimShape, dict[str, str]]:
    """Return the claim, and which request each container uses, by name. asks: valid, with memory.
    tiers: shares prefer GPUs that are in use."""
    containers = [one for field in LISTS for one in pod["spec"].get(field) or ()]
    resources = [one.get("resources") or {} for one in containers]
    claims = [claim for one in resources for claim in one.get("claims") or ()]
    used = {one.get("request") for one in claims if one.get("name") == CLAIM}
    own = {one.name: one for one in earlier.requests if one.name in used} if earlier else {}
    wanted = {
        ask.name: RequestShape(ask.name, ask.request.cores, ask.request.blocks)
        for ask in asks
        if ask.request
    }
    own |= {ask.name: wanted[ask.name] for ask in asks if ask.kind is not ContainerKind.INIT}
    uses = {name: name for name in own}
    for ask in asks:
        if ask.kind is ContainerKind.INIT:
            started = pod["spec"][ask.field][: ask.place]
            sidecars = {
                one["name"] for one in started if kind_of(one, init=True) is ContainerKind.SIDECAR
            }
            needed = wanted[ask.name]
            enough = sorted(
                (one for name, one in own.items() if one.covers(needed) and name not in sidecars),
                key=lambda one: (one.cores, one.blocks, one.name),
            )
            own |= {} if enough else {ask.name: wanted[ask.name]}
            uses[ask.name] = enough[0].name if enough else ask.name
    return ClaimShape.of(tuple(sorted(own.values())), annotations(pod), tiers=tiers), uses


def convert(
    pod: Any, asks: Collection[ContainerAmounts], shape: ClaimShape, uses: Mapping[str, str]
) -> None:
    """Change the pod. shape, uses: as `shape_of` returns them."""
    metadata, spec = pod["metadata"], pod["spec"]
    labels = metadata.get("labels") or {}
    metadata["labels"] = {**labels, LABEL_CLAIM_TEMPLATE: shape.name}
    metadata["annotations"] = {**annotations(pod), ANNOTATION_CLAIM: shape.text}
    others = [one for one in spec.get("resourceClaims") or () if one.get("name") != CLAIM]
    claim = {"name": CLAIM, "resourceClaimTemplateName": shape.name}
    spec["resourceClaims"] = [*others, claim]
    for ask in asks:
        resources = spec[ask.field][ask.place]["resources"]
        for part, key in product(("limits", "requests"), RESOURCES):
            (resources.get(part) or {}).pop(key, None)
        named = {"name": CLAIM, "request": uses[ask.name]}
        resources["claims"] = [*(resources.get("claims") or ()), named]

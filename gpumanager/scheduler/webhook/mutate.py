"""How a pod with GPUs is changed before it is stored: a JSON patch (RFC 6902). Pure.

Each rule checks the pod and adds what is missing. A complete pod is not changed, so the patch is
idempotent.
"""

import copy
from collections.abc import Collection, Iterator
from typing import Any, Final

from gpumanager.names import (
    ANNOTATION_GPU_ASSIGNED,
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_PREDICATE_TIME,
    VCORE,
    VMEMORY,
)
from gpumanager.scheduler.webhook.asks import (
    ContainerAmounts,
    annotations,
    is_mirror,
    mapping,
    read_asks,
    rows,
)
from gpumanager.scheduler.webhook.nodes import NodeKind, smallest_gpu
from gpumanager.scheduler.webhook.policy import AdmissionPolicy, DefaultMemory
from gpumanager.scheduler.webhook.review import Operation
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, format_bytes

STALE: Final = (
    ANNOTATION_PLAN,
    ANNOTATION_PREDICATE_TIME,
    ANNOTATION_PREDICATE_NODE,
    ANNOTATION_PREDICATE_GPU_INDEX,
    ANNOTATION_GPU_ASSIGNED,
)
"""What a scheduler writes, or how that begins: a pod that is just made has been to none."""

UNNAMED: Final = ("", None, "default-scheduler")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def mutate(
    pod: Any, policy: AdmissionPolicy, nodes: Collection[NodeKind] = ()
) -> tuple[Operation, ...]:
    """Return the patch for a new pod; empty for one that asks for no GPU. Raises PodUnreadable."""
    asks = read_asks(pod)
    if not asks or is_mirror(pod):
        return ()
    spec, wanted = pod["spec"], policy.scheduler_name
    steps = list(_forget_schedulers(pod))
    if wanted and spec.get("schedulerName") in UNNAMED and wanted not in UNNAMED:
        steps.append(Operation("add", "/spec/schedulerName", wanted))
    lacking = list(_without_memory(asks, policy, nodes))
    steps += [*_pin_by_affinity(spec, policy), *_tolerate(spec, asks, policy, lacking)]
    for ask, blocks in lacking:
        resources, path = spec[ask.field][ask.place]["resources"], f"/spec/{ask.field}/{ask.place}"
        # Of an extended resource, limit and request are the same.
        amounts = {**(resources.get("limits") or {}), VMEMORY: str(blocks)}
        if ask.amounts[VCORE].limit is None:
            amounts[VCORE] = ask.amounts[VCORE].written
        size = format_bytes(blocks * MEMORY_BLOCK)
        note = f"{ask.where} names no {VMEMORY}: it gets {blocks} ({size})"
        steps.append(Operation("add", f"{path}/resources/limits", amounts, note))
        amounts = {**(resources.get("requests") or {}), VMEMORY: str(blocks)}
        steps.append(Operation("add", f"{path}/resources/requests", amounts))
    return tuple(steps)


def mutate_to_claims(
    pod: Any, policy: AdmissionPolicy, nodes: Collection[NodeKind] = ()
) -> tuple[Any, tuple[Operation, ...]]:
    """Return the pod with the memory that its shares lack, from which a claim for its GPUs is made,
    and the patch for all else. Raises PodUnreadable."""
    asks = read_asks(pod)
    if not asks or is_mirror(pod):
        return pod, ()
    complete, spec = copy.deepcopy(pod), pod["spec"]
    lacking = list(_without_memory(asks, policy, nodes))
    for ask, blocks in lacking:
        resources = complete["spec"][ask.field][ask.place]["resources"]
        for part in ("limits", "requests"):
            if part in resources:
                resources[part] = {**(resources[part] or {}), VMEMORY: str(blocks)}
    tolerated = _tolerate(spec, asks, policy, lacking)
    return complete, (*_forget_schedulers(pod), *_pin_by_affinity(spec, policy), *tolerated)


def _forget_schedulers(pod: Any) -> Iterator[Operation]:
    for key in annotations(pod):
        if key.startswith(STALE):
            yield Operation("remove", f"/metadata/annotations/{escaped(key)}")


def _pin_by_affinity(spec: Any, policy: AdmissionPolicy) -> Iterator[Operation]:
    """Add the node of a pinned pod to each term there is, as terms are alternatives."""
    node = spec.get("nodeName")
    if not node or not policy.pin:
        return
    affinity = mapping(spec.get("affinity"), "spec.affinity")
    near = mapping(affinity.get("nodeAffinity"), "spec.affinity.nodeAffinity")
    required = mapping(near.get(REQUIRED), f"spec.affinity.nodeAffinity.{REQUIRED}")
    pin = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = []
    for term in rows(required.get("nodeSelectorTerms"), "its terms"):
        found = mapping(term, "a node selector term")
        fields = rows(found.get("matchFields"), "matchFields")
        # A term without any condition matches no node, and is left so.
        matches = fields or found.get("matchExpressions")
        terms.append({**found, "matchFields": [*fields, pin]} if matches else term)
    pinned = {**required, "nodeSelectorTerms": terms or [{"matchFields": [pin]}]}
    yield Operation("remove", "/spec/nodeName")
    yield Operation(
        "add",
        "/spec/affinity",
        {**affinity, "nodeAffinity": {**near, REQUIRED: pinned}},
        f"spec.nodeName became a node affinity for {node}: the scheduler has to count its GPUs",
    )


def _tolerate(
    spec: Any,
    asks: Collection[ContainerAmounts],
    policy: AdmissionPolicy,
    lacking: Collection[object],
) -> Iterator[Operation]:
    there = rows(spec.get("tolerations"), "spec.tolerations")
    asked = {key for ask in asks for key, amount in ask.amounts.items() if amount.number != 0}
    asked |= {VMEMORY} if lacking else set()
    missing = [
        {"key": key, "operator": "Exists", "effect": "NoSchedule"}
        for key in policy.tolerate
        if key in asked and not any(_tolerates(one, key) for one in there)
    ]
    if missing:
        yield Operation("add", "/spec/tolerations", [*there, *missing])


def _tolerates(toleration: Any, key: str) -> bool:
    """Return whether it tolerates any value of the taint, as `Exists` does; no key means all."""
    row = mapping(toleration, "spec.tolerations")
    return (
        row.get("operator") == "Exists"
        and row.get("key") in (key, "", None)
        and row.get("effect") in ("NoSchedule", "", None)
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


def escaped(key: str) -> str:
    """Escape a key for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")

"""Converts a pod with vcuda-core and vcuda-memory to one with a claim: a JSON patch. Pure.

Each container with GPUs names one request of one claim. An init container uses the request of a
later container if that is large enough, just as the kubelet reuses device IDs. A sidecar that runs
beside it keeps its own. The API server asks
again where a later webhook has changed the pod: a container that it added joins the claim.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from gpumanager.kube.pod import ContainerKind, kind_of
from gpumanager.names import ANNOTATION_CLAIM, LABEL_CLAIM_TEMPLATE
from gpumanager.scheduler.claims.template import ClaimShape, RequestShape, read_shape
from gpumanager.scheduler.webhook.asks import (
    LISTS,
    RESOURCES,
    ContainerAmounts,
    annotations,
    mapping,
    rows,
)
from gpumanager.scheduler.webhook.mutate import escaped
from gpumanager.scheduler.webhook.review import Operation

CLAIM: Final = "vcuda"
"""What a pod calls its claim."""
TAKEN: Final = (
    f"spec.resourceClaims: {CLAIM} is the name of the claim that {' and '.join(RESOURCES)} become; "
    "give this claim another name"
)


def earlier_claim(pod: Any) -> ClaimShape | None:
    """Return the claim that an earlier call of the webhook gave to this pod, if one did. Raises
    ValueError where the claim of that name is another one."""
    spec = mapping(pod.get("spec"), "spec")
    there = [mapping(one, "a claim") for one in rows(spec.get("resourceClaims"), "spec.claims")]
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
) -> Iterator[Operation]:
    """Yield the steps of the patch. shape, uses: as `shape_of` returns them."""
    metadata, spec = pod["metadata"], pod["spec"]
    for key, value, found in (
        ("labels", {LABEL_CLAIM_TEMPLATE: shape.name}, metadata.get("labels")),
        ("annotations", {ANNOTATION_CLAIM: shape.text}, metadata.get("annotations")),
    ):
        yield Operation("add", f"/metadata/{key}", {**mapping(found, f"metadata.{key}"), **value})
    there = rows(spec.get("resourceClaims"), "spec.resourceClaims")
    claim = {"name": CLAIM, "resourceClaimTemplateName": shape.name}
    yield Operation(
        "add",
        "/spec/resourceClaims",
        [*(one for one in there if mapping(one, "a claim").get("name") != CLAIM), claim],
        f"{' and '.join(RESOURCES)} became a claim of the template {shape.name}",
    )
    for ask in asks:
        resources = spec[ask.field][ask.place]["resources"]
        path = f"/spec/{ask.field}/{ask.place}/resources"
        for part in ("limits", "requests"):
            for key in RESOURCES:
                if key in (resources.get(part) or {}):
                    yield Operation("remove", f"{path}/{part}/{escaped(key)}")
        claims = rows(resources.get("claims"), f"{ask.where}: claims")
        named = {"name": CLAIM, "request": uses[ask.name]}
        yield Operation("add", f"{path}/claims", [*claims, named])

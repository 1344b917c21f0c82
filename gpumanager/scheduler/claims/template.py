"""The ResourceClaimTemplate that requests the same as a pod's resources. Pure.

A template is named after its content. So equal pods of a namespace share one, and a rollout that
changes nothing about GPUs needs no new one. The pod has the template's content in an annotation and
its name in a label. So any replica that sees the pod can create the template at any time, and the
webhook writes nothing but its patch.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from gpumanager.kube.vcuda_config import API_VERSION, KIND, UNUSED
from gpumanager.names import (
    ANNOTATION_CORE_LIMIT,
    ANNOTATION_MODEL_EXCLUDED,
    ANNOTATION_MODEL_WANTED,
    ANNOTATION_UUID_EXCLUDED,
    ANNOTATION_UUID_WANTED,
    CAPACITY_CORES,
    CAPACITY_MEMORY,
    CLAIM_DEVICE_CLASS,
    CLAIM_DRIVER,
    MANAGED_BY_LABEL,
    MANAGED_BY_US,
)
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

RESOURCE_API: Final = "resource.k8s.io/v1"
NAME_DIGITS: Final = 16
MOST_REQUESTS: Final = 32
"""Of one claim, by Kubernetes' own validation."""
TEMPLATE_ANNOTATION_LETTERS: Final = 16 << 10
"""Of the annotation."""
IN_USE: Final = f"device.attributes['{CLAIM_DRIVER}'].freeCores < {CORES_PER_GPU}"
"""What a share's first alternative asks of its GPU where there are two."""
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

PARAMETERS: Final[Mapping[str, str]] = {ANNOTATION_CORE_LIMIT: "coreLimit"}
"""Annotations of a pod, and the field of VcudaConfig that says the same. How a node is chosen is
read from the pod by the extender; how a GPU is chosen the node says by its slice's order."""

WISHES: Final[Mapping[str, str]] = {
    ANNOTATION_MODEL_WANTED: "models",
    ANNOTATION_MODEL_EXCLUDED: "notModels",
    ANNOTATION_UUID_WANTED: "uuids",
    ANNOTATION_UUID_EXCLUDED: "notUuids",
}


class RequestShape(NamedTuple):
    """One request of the claim. name: of the container that is given it.

    cores: percent of a GPU, or 100 for each whole one. blocks: of 256 MiB; of a whole GPU what each
    must have at least.
    """

    name: str
    cores: int
    blocks: int

    @property
    def gpus(self) -> int:
        return max(1, self.cores // CORES_PER_GPU)

    @property
    def is_share(self) -> bool:
        return self.cores < CORES_PER_GPU

    def covers(self, other: "RequestShape") -> bool:
        """Return whether a container with this has what the other asks for."""
        same = self.is_share == other.is_share
        return same and self.cores >= other.cores and self.blocks >= other.blocks


@dataclass(frozen=True, slots=True)
class ClaimShape:
    """All that a pod asks for. parameters: of VcudaConfig. wishes: words, by kind.

    tiers: a share prefers a GPU that is in use, by two alternatives of its request.
    """

    requests: tuple[RequestShape, ...]
    parameters: Mapping[str, str] = field(default_factory=dict)
    wishes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tiers: bool = False

    @classmethod
    def of(
        cls,
        requests: tuple[RequestShape, ...],
        annotations: Mapping[str, Any],
        *,
        tiers: bool = False,
    ) -> Self:
        """Return the claim of a pod with these annotations."""
        said = {field: annotations[key] for key, field in PARAMETERS.items() if key in annotations}
        listed = {
            field: {word.strip() for word in str(annotations.get(key, "")).split(",")} - {""}
            for key, field in WISHES.items()
        }
        return cls(
            requests,
            {field: str(value).strip() for field, value in said.items()},
            {field: sorted(words) for field, words in listed.items() if words},
            tiers and any(one.is_share for one in requests),
        )

    @property
    def name(self) -> str:
        """Of the template, by its content."""
        return f"vcuda-{hashlib.sha256(self.text.encode()).hexdigest()[:NAME_DIGITS]}"

    @property
    def text(self) -> str:
        """As the annotation has it."""
        content = {
            "requests": self.requests,
            "parameters": self.parameters,
            "wishes": self.wishes,
            **({"tiers": True} if self.tiers else {}),
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @property
    def cores(self) -> int:
        """Return the percent of a GPU that all requests hold together while the pod lives."""
        return sum(one.cores for one in self.requests)

    @property
    def blocks(self) -> int:
        """Return the blocks of memory as a plain pod's resource has them."""
        return sum(one.blocks for one in self.requests)

    def template(self, namespace: str) -> dict[str, Any]:
        """Return the object to create."""
        selectors = _selectors(self.wishes)
        requests = [_request(one, selectors, tiers=self.tiers) for one in self.requests]
        devices: dict[str, Any] = {"requests": requests}
        if self.parameters:
            content = dict[str, Any](self.parameters)
            if "coreLimit" in content:
                content["coreLimit"] = min(CORES_PER_GPU, int(content["coreLimit"]))
            parameters = {"apiVersion": API_VERSION, "kind": KIND, **content}
            devices["config"] = [{"opaque": {"driver": CLAIM_DRIVER, "parameters": parameters}}]
        return {
            "apiVersion": RESOURCE_API,
            "kind": "ResourceClaimTemplate",
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": {MANAGED_BY_LABEL: MANAGED_BY_US},
            },
            "spec": {"spec": {"devices": devices}},
        }


def read_shape(text: str) -> ClaimShape:
    """Read a pod's annotation, which anybody may have written; raises ValueError."""
    if len(text) > TEMPLATE_ANNOTATION_LETTERS:
        raise ValueError(
            f"it has {len(text)} characters; at most {TEMPLATE_ANNOTATION_LETTERS} are read"
        )
    fields = (*PARAMETERS.values(), UNUSED)  # the template is named after all that stands there
    try:
        content = json.loads(text)
        said, wishes = content["parameters"], content["wishes"]
        shape = ClaimShape(
            tuple(RequestShape(*row) for row in content["requests"]),
            {field: str(said[field]) for field in fields if field in said},
            {field: [*map(str, wishes[field])] for field in WISHES.values() if field in wishes},
            content.get("tiers") is True,
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it is not what the webhook writes: {error!r}") from None
    if not 1 <= len(shape.requests) <= MOST_REQUESTS:
        raise ValueError(f"it has {len(shape.requests)} requests; a claim has 1 to {MOST_REQUESTS}")
    for one in shape.requests:
        if not isinstance(one.name, str) or not _NAME.fullmatch(one.name):
            raise ValueError(f"{str(one.name)[:80]!r} names no request")
        if {type(one.cores), type(one.blocks)} != {int} or one.cores < 1 or one.blocks < 0:
            raise ValueError(f"{one.name}: {str(one)[:80]} is no amount")
    if not shape.parameters.get("coreLimit", "0").isdigit():
        raise ValueError("its coreLimit is no number")
    return shape


def _request(one: RequestShape, selectors: list[str], *, tiers: bool) -> dict[str, Any]:
    asked: dict[str, Any] = {
        "deviceClassName": CLAIM_DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": one.gpus,
    }
    memory = f"{one.blocks * MEMORY_BLOCK >> 20}Mi"
    if one.is_share:
        asked["capacity"] = {"requests": {CAPACITY_CORES: str(one.cores), CAPACITY_MEMORY: memory}}
    elif one.blocks:  # no capacity asked is a whole GPU; the two lines' memory is what it must have
        size = f"device.capacity['{CLAIM_DRIVER}'].memory"
        selectors = [*selectors, f"{size}.compareTo(quantity('{memory}')) >= 0"]

    def selecting(texts: list[str]) -> dict[str, Any]:
        cel = [{"cel": {"expression": text}} for text in texts]
        return {**asked, "selectors": cel} if cel else asked

    if one.is_share and tiers:
        first = {"name": "shared", **selecting([IN_USE, *selectors])}
        return {
            "name": one.name,
            "firstAvailable": [first, {"name": "any", **selecting(selectors)}],
        }
    return {"name": one.name, "exactly": selecting(selectors)}


def _selectors(wishes: Mapping[str, Sequence[str]]) -> list[str]:
    """CEL over the attributes that a node publishes. Words are quoted as JSON, as CEL reads it."""
    attributes, found = f"device.attributes['{CLAIM_DRIVER}']", []
    for kind in WISHES.values():
        if words := wishes.get(kind):
            no = "!" if kind.startswith("not") else ""
            if kind.lower().endswith("models"):
                listed = json.dumps([word.lower() for word in words])
                product = f"{attributes}.productName.lowerAscii()"
                found.append(f"{no}{listed}.exists(word, {product}.contains(word))")
            else:
                found.append(f"{no}({attributes}.uuid in {json.dumps(list(words))})")
    return found

"""Claims, their templates and device classes from YAML, as the objects that the API server takes.

An unknown field is refused as with pods: who writes `capcity` shall not be given a whole GPU.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpumanager.sim.cluster.resource_rules import defaulted, problems
from gpumanager.sim.manifest import pod_fields
from gpumanager.sim.manifest.yaml_text import Value

API_VERSION: Final = "resource.k8s.io/v1"
RESOURCES: Final = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
}
"""By kind."""

Fields = Mapping[str, Any]
"""Of a mapping: for each field what is in it, a mapping's fields, a list of such, or anything."""
ANYTHING: Final = None
_SELECTORS: Final = [{"cel": {"expression": ANYTHING}}]
_TOLERATION: Final = ("key", "operator", "value", "effect", "tolerationSeconds")
_ASKED: Final = {
    "deviceClassName": ANYTHING,
    "selectors": _SELECTORS,
    "allocationMode": ANYTHING,
    "count": ANYTHING,
    "capacity": {"requests": ANYTHING},
    "tolerations": [dict.fromkeys(_TOLERATION)],
    "derivedAttributes": ANYTHING,
}
_REQUEST: Final = {
    "name": ANYTHING,
    "exactly": {**_ASKED, "adminAccess": ANYTHING},
    "firstAvailable": [{**_ASKED, "name": ANYTHING}],
}
_CONFIG: Final = {"opaque": {"driver": ANYTHING, "parameters": ANYTHING}}
_CONSTRAINT: Final = dict.fromkeys(("requests", "matchAttribute", "distinctAttribute"))
_CLAIM: Final = {
    "devices": {
        "requests": [_REQUEST],
        "constraints": [_CONSTRAINT],
        "config": [{**_CONFIG, "requests": ANYTHING}],
    }
}
_METADATA: Final = dict.fromkeys(pod_fields.METADATA)
_ALL: Final = {"apiVersion": ANYTHING, "kind": ANYTHING, "metadata": _METADATA, "status": ANYTHING}
_FIELDS: Final[Mapping[str, Fields]] = {
    "ResourceClaim": {**_ALL, "spec": _CLAIM},
    "ResourceClaimTemplate": {**_ALL, "spec": {"metadata": _METADATA, "spec": _CLAIM}},
    "DeviceClass": {
        **_ALL,
        "spec": {
            "selectors": _SELECTORS,
            "config": [_CONFIG],
            "extendedResourceName": ANYTHING,
            "managementPolicy": ANYTHING,
        },
    },
}


def read_object(kind: str, value: Value) -> Mapping[str, Any]:
    """Return the object with the API's defaults; raises InputError with the line and the cause."""
    _check(value, _FIELDS[kind])
    resource, item = RESOURCES[kind], plain(value)
    if kind != "DeviceClass":
        item["metadata"] = {"namespace": "default", **item.get("metadata", {})}
    if causes := problems(resource, made := defaulted(resource, item)):
        raise value.error("; ".join(causes))
    return made


def _check(value: Value, known: Any) -> None:
    if value.empty or known is ANYTHING:
        return
    if isinstance(known, Sequence):
        for item in value.items():
            _check(item, known[0])
        return
    for name, field in value.known_fields(known).items():
        _check(field, known[name])


def plain(value: Value) -> Any:
    """Return it as JSON has it; what is empty is left out, as an API server does."""
    if value.kind == "a mapping":
        return {name: plain(one) for name, one in value.fields().items() if not one.empty}
    if value.kind == "a list":
        return [plain(item) for item in value.items()]
    match value.kind:
        case "an integer":
            return value.integer()
        case "a boolean":
            return value.boolean()
        case "a number":
            return float(value.scalar())
        case _:
            return value.text()

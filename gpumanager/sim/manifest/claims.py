"""Claims, their templates and device classes from YAML, as the objects that the API server takes.

Checked is what the simulated scheduler reads. An unknown field is refused as with pods: who writes
`capcity` shall not be given a whole GPU. A field that the API has and nobody simulates is too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpumanager.kube.quantity import exact
from gpumanager.kube.selectors import SelectorNotKnown, read_selector
from gpumanager.sim.manifest import pod_fields
from gpumanager.sim.manifest.yaml_text import Value, checked_name, optional, required, rows
from gpumanager.sim.names import LABEL, SUBDOMAIN

API_VERSION: Final = "resource.k8s.io/v1"
RESOURCES: Final = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
}
"""By kind."""


def _label(value: Value) -> None:
    checked_name(value.text(), value, LABEL)


def _subdomain(value: Value) -> None:
    checked_name(value.text(), value, SUBDOMAIN)


def _expression(value: Value) -> None:
    try:
        read_selector(value.text())
    except SelectorNotKnown as error:
        raise value.error(str(error)) from None


def _mode(value: Value) -> None:
    if value.text() not in {"ExactCount", "All"}:
        raise value.error("expected ExactCount or All")


def _count(value: Value) -> None:
    if value.integer() < 1:
        raise value.error("expected 1 or more")


def _amounts(value: Value) -> None:
    for one in value.fields().values():
        if (amount := exact(one.scalar())) is None or amount < 0:
            raise one.error(f"{one.scalar()!r} is not a quantity: write 30 or 2Gi")


def _operator(value: Value) -> None:
    if value.text() not in {"Equal", "Exists"}:
        raise value.error("expected Equal or Exists")


def _qualified(value: Value) -> None:
    if not value.text().partition("/")[2]:
        raise value.error("expected a domain and a name: gpu.tencent.com/numa")


def _not_simulated(value: Value) -> None:
    raise value.error("not simulated: leave it out")


ANYTHING: Final = None
Fields = Mapping[str, Any]
"""Of a mapping: for each field a mapping's fields, a list of such, what checks it, or anything."""
_SELECTORS: Final = [{"cel": {"expression": _expression}}]
_TOLERATION: Final = dict.fromkeys(("key", "value", "effect", "tolerationSeconds"))
_ASKED: Final = {
    "deviceClassName": _subdomain,
    "selectors": _SELECTORS,
    "allocationMode": _mode,
    "count": _count,
    "capacity": {"requests": _amounts},
    "tolerations": [{**_TOLERATION, "operator": _operator}],
    "derivedAttributes": _not_simulated,
}
_REQUEST: Final = {
    "name": _label,
    "exactly": {**_ASKED, "adminAccess": ANYTHING},
    "firstAvailable": [{**_ASKED, "name": _label}],
}
_CONFIG: Final = {"opaque": {"driver": ANYTHING, "parameters": ANYTHING}}
_CLAIM: Final = {
    "devices": {
        "requests": [_REQUEST],
        "constraints": [
            {"requests": ANYTHING, "matchAttribute": _qualified, "distinctAttribute": _qualified}
        ],
        "config": [{**_CONFIG, "requests": ANYTHING}],
    }
}
_METADATA: Final = dict.fromkeys(pod_fields.METADATA)
_ALL: Final = {
    "apiVersion": ANYTHING,
    "kind": ANYTHING,
    "metadata": {**_METADATA, "name": _subdomain},
    "status": ANYTHING,
}
_FIELDS: Final[Mapping[str, Fields]] = {
    "ResourceClaim": {**_ALL, "spec": _CLAIM},
    "ResourceClaimTemplate": {**_ALL, "spec": {"metadata": _METADATA, "spec": _CLAIM}},
    "DeviceClass": {
        **_ALL,
        "spec": {
            "selectors": _SELECTORS,
            "config": [_CONFIG],
            "extendedResourceName": _qualified,
            "managementPolicy": _not_simulated,
        },
    },
}


def read_object(kind: str, value: Value) -> Mapping[str, Any]:
    """Return the object; raises InputError with the line and the cause."""
    _check(value, _FIELDS[kind])
    metadata = required(value.fields(), "metadata", value)
    required(metadata.fields(), "name", metadata)
    item = plain(value)
    if kind != "DeviceClass":
        spec = required(value.fields(), "spec", value)
        if kind == "ResourceClaimTemplate":
            spec = required(spec.fields(), "spec", spec)
        _check_devices(required(spec.fields(), "devices", spec))
        item["metadata"] = {"namespace": "default", **item["metadata"]}
    return {name: one for name, one in item.items() if name != "status"}


def _check(value: Value, known: Any) -> None:
    if value.empty or known is ANYTHING:
        return
    if callable(known):
        known(value)
    elif isinstance(known, Sequence):
        for item in value.items():
            _check(item, known[0])
    else:
        for name, field in value.known_fields(known).items():
            _check(field, known[name])


def _check_devices(devices: Value) -> None:
    """Check what fields have to do with one another; raises InputError."""
    fields, names = devices.fields(), set[str]()
    for one in rows(optional(fields, "requests")):
        new = _names(one)
        if len(names.union(new)) < len(names) + len(new):
            raise one.error("its name is given twice")
        names.update(new)
    constraints = rows(optional(fields, "constraints"))
    for one in (*constraints, *rows(optional(fields, "config"))):
        for used in rows(optional(one.fields(), "requests")):
            if used.text() not in names:
                raise used.error(f"{used.text()!r} is no request of this claim")
    for one in constraints:
        if not {"matchAttribute", "distinctAttribute"} & one.fields().keys():
            raise one.error("matchAttribute or distinctAttribute is missing")


def _names(request: Value) -> list[str]:
    """Return the name of a request, and of its alternatives, after checking them."""
    asked = request.fields()
    exactly, others = optional(asked, "exactly"), rows(optional(asked, "firstAvailable"))
    if (exactly is None) is (not others):
        raise request.error("exactly one of exactly and firstAvailable is required")
    for way in [exactly] if exactly else others:
        required(way.fields(), "deviceClassName", way)
        mode, count = (optional(way.fields(), key) for key in ("allocationMode", "count"))
        if count and mode and mode.text() == "All":
            raise count.error("All devices have no count: leave one of the two out")
    name = required(asked, "name", request).text()
    return [name, *(f"{name}/{required(way.fields(), 'name', way).text()}" for way in others)]


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

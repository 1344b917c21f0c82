"""Claims, their templates and device classes from YAML, as the objects that the API server takes.

Checked is what the simulated scheduler reads. An unknown field is refused as with pods: who writes
`capcity` shall not be given a whole GPU. A field that the API has and nobody simulates is too.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpumanager.kube.quantity import exact
from gpumanager.kube.selectors import SelectorNotKnown, read_selector
from gpumanager.sim.manifest.yaml_text import Fields, Value, checked_name
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
OTHERS: Final = ""
"""Instead of a field's name: all that are not named."""
Checks = Mapping[str, Any]
"""Of a mapping: for each field a mapping's checks, a list of such, what checks it, or anything."""
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
_ALL: Final = {
    "apiVersion": ANYTHING,
    "kind": ANYTHING,
    "metadata": {"name": _subdomain, OTHERS: ANYTHING},
    "status": ANYTHING,
}
_FIELDS: Final[Mapping[str, Checks]] = {
    "ResourceClaim": {**_ALL, "spec": _CLAIM},
    "ResourceClaimTemplate": {**_ALL, "spec": {"metadata": ANYTHING, "spec": _CLAIM}},
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
    fields = value.fields()
    fields.required("metadata").fields().required("name")
    item = plain(value)
    if kind != "DeviceClass":
        spec = fields.required("spec").fields()
        if kind == "ResourceClaimTemplate":
            spec = spec.required("spec").fields()
        _check_devices(spec.required("devices").fields())
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
        for name, field in value.fields().items():
            _check(field, known.get(name, known.get(OTHERS, _not_simulated)))


def _check_devices(devices: Fields) -> None:
    """Check what fields have to do with one another; raises InputError."""
    names = set[str]()
    for one in devices.rows("requests"):
        new = _names(one.fields())
        if len(names.union(new)) < len(names) + len(new):
            raise one.error("its name is given twice")
        names.update(new)
    for one in (*devices.rows("constraints"), *devices.rows("config")):
        for used in one.fields().rows("requests"):
            if used.text() not in names:
                raise used.error(f"{used.text()!r} is no request of this claim")
    for one in devices.rows("constraints"):
        if not {"matchAttribute", "distinctAttribute"} & one.fields().keys():
            raise one.error("matchAttribute or distinctAttribute is missing")


def _names(asked: Fields) -> list[str]:
    """Return the name of a request, and of its alternatives, after checking them."""
    exactly, others = asked.optional("exactly"), asked.rows("firstAvailable")
    if (exactly is None) is (not others):
        raise asked.of.error("exactly one of exactly and firstAvailable is required")
    ways = [way.fields() for way in ([exactly] if exactly else others)]
    for way in ways:
        way.required("deviceClassName")
        count = way.optional("count")
        if count and way.text("allocationMode") == "All":
            raise count.error("All devices have no count: leave one of the two out")
    name = asked.required("name").text()
    return [name, *(f"{name}/{way.required('name').text()}" for way in ways if others)]


def plain(value: Value) -> Any:
    """Return it as JSON has it; what is empty is left out, as an API server does."""
    match value.kind:
        case "a mapping":
            return {name: plain(one) for name, one in value.fields().items() if not one.empty}
        case "a list":
            return [plain(item) for item in value.items()]
        case "an integer":
            return value.integer()
        case "a boolean":
            return value.boolean()
        case "a number":
            return float(value.scalar())
        case _:
            return value.text()

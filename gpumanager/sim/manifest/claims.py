"""Claims, their templates and device classes from YAML, as the objects that the API server takes.

Checked is what the simulated scheduler reads. A field that the API has and nobody simulates is
refused: who asks for less than a whole GPU by it shall not be given all of it.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpumanager.kube.quantity import exact
from gpumanager.kube.selectors import SelectorNotKnown, read_selector
from gpumanager.sim.manifest.yaml_text import LABEL, SUBDOMAIN, Fields

API_VERSION: Final = "resource.k8s.io/v1"
RESOURCES: Final = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
}
"""By kind."""


def read_object(kind: str, fields: Fields) -> Mapping[str, Any]:
    """Return the object; raises InputError with the line and the cause."""
    metadata = fields.required("metadata")
    metadata.name("name", SUBDOMAIN)
    if kind == "DeviceClass":
        spec = fields.below("spec")
        _check_selectors(spec)
        _check_qualified(spec, "extendedResourceName")
    else:
        metadata = {"namespace": "default", **metadata}
        spec = fields.required("spec")
        spec = spec.required("spec") if kind == "ResourceClaimTemplate" else spec
        _check_devices(spec.required("devices"))
    found = {**fields, "metadata": metadata}
    return {name: one for name, one in found.items() if name != "status"}


def _check_devices(devices: Fields) -> None:
    names = set[str]()
    for request in devices.get("requests", ()):
        new = _names(request)
        if len(names.union(new)) < len(names) + len(new):
            raise request.error("its name is given twice")
        names.update(new)
    constraints = devices.get("constraints", ())
    for one in (*constraints, *devices.get("config", ())):
        if unknown := set(one.get("requests", ())) - names:
            raise one.error(f"{min(unknown)!r} is no request of this claim", "requests")
    for one in constraints:
        _check_qualified(one, "matchAttribute")
        _check_qualified(one, "distinctAttribute")
        if not {"matchAttribute", "distinctAttribute"} & one.keys():
            raise one.error("matchAttribute or distinctAttribute is missing")


def _names(request: Fields) -> list[str]:
    """Return the name of a request, and of its alternatives, after checking them."""
    exactly, others = request.get("exactly"), request.get("firstAvailable", [])
    if (exactly is None) is (not others):
        raise request.error("exactly one of exactly and firstAvailable is required")
    for way in others or [exactly]:
        way.name("deviceClassName", SUBDOMAIN)
        _check_selectors(way)
        _check_word(way, "allocationMode", ("ExactCount", "All"))
        if way.get("count", 1) < 1:
            raise way.error("expected 1 or more", "count")
        if "count" in way and way.get("allocationMode") == "All":
            raise way.error("All devices have no count: leave one of the two out", "count")
        if "derivedAttributes" in way:
            raise way.error("not simulated: leave it out", "derivedAttributes")
        amounts = way.below("capacity").below("requests")
        for name, text in amounts.items():
            if (amount := exact(text)) is None or amount < 0:
                raise amounts.error(f"{text!r} is not a quantity: write 30 or 2Gi", name)
        for toleration in way.get("tolerations", ()):
            _check_word(toleration, "operator", ("Equal", "Exists"))
    name = request.name("name", LABEL)
    return [name, *(f"{name}/{way.name('name', LABEL)}" for way in others)]


def _check_selectors(fields: Fields) -> None:
    for selector in fields.get("selectors", ()):
        if "expression" in (cel := selector.below("cel")):
            try:
                read_selector(cel["expression"])
            except SelectorNotKnown as error:
                raise cel.error(str(error), "expression") from None


def _check_word(fields: Fields, name: str, words: tuple[str, str]) -> None:
    if fields.get(name, words[0]) not in words:
        raise fields.error(f"expected {' or '.join(words)}", name)


def _check_qualified(fields: Fields, name: str) -> None:
    if name in fields and not fields[name].partition("/")[2]:
        raise fields.error("expected a domain and a name: gpu.tencent.com/numa", name)

"""What claims ask for, read from their JSON. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpumanager.sim.claims.quantities import Quantity, read_quantity

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request, or one of a request's alternatives.

    name: of the request, `gpu`. full_name: `gpu/small` for an alternative. count: None for all.
    """

    name: str
    full_name: str
    device_class: str
    selectors: tuple[str, ...]
    count: int | None
    admin: bool
    capacity: Mapping[str, Quantity]
    tolerations: tuple[Object, ...]

    def tolerates(self, taint: Object) -> bool:
        return any(_tolerates(one, taint) for one in self.tolerations)


def _tolerates(toleration: Object, taint: Object) -> bool:
    """An empty key or effect means any."""
    for name in ("effect", "key"):
        if toleration.get(name) and toleration[name] != taint.get(name):
            return False
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return bool(toleration.get("operator") == "Exists" or same)


def alternatives(request: Object) -> tuple[DeviceRequest, ...]:
    """Of one request of a claim: one, or those of its firstAvailable in their order."""
    if not request.get("firstAvailable"):
        return (_read(request["name"], request["name"], request["exactly"]),)
    name = request["name"]
    return tuple(_read(name, f"{name}/{one['name']}", one) for one in request["firstAvailable"])


def _read(name: str, full_name: str, item: Object) -> DeviceRequest:
    wanted = (item.get("capacity") or {}).get("requests") or {}
    every = item.get("allocationMode") == "All"
    return DeviceRequest(
        name=name,
        full_name=full_name,
        device_class=item["deviceClassName"],
        selectors=expressions(item),
        count=None if every else int(item.get("count") or 1),
        admin=bool(item.get("adminAccess")),
        capacity={key: read_quantity(value) for key, value in wanted.items()},
        tolerations=tuple(item.get("tolerations") or ()),
    )


def expressions(item: Object) -> tuple[str, ...]:
    """Return the CEL expressions of a request or of a class's spec."""
    return tuple(one["cel"]["expression"] for one in item.get("selectors") or ())

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
        """Return whether a toleration is for the taint; an empty key or effect means any."""
        for one in self.tolerations:
            named = all(one.get(key) in (None, "", taint.get(key)) for key in ("effect", "key"))
            same = (one.get("value") or "") == (taint.get("value") or "")
            if named and (one.get("operator") == "Exists" or same):
                return True
        return False


def alternatives(request: Object) -> tuple[DeviceRequest, ...]:
    """Read one request of a claim: itself, or those of its firstAvailable in their order."""
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

"""The allocation of a claim as the API has it: devices, configuration, nodes. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpumanager.sim.claims.quantities import Quantity
from gpumanager.sim.claims.requests import DeviceRequest
from gpumanager.sim.claims.slices import PoolDevice

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """One device for one request. share: the name of this share, None for a whole device."""

    request: DeviceRequest
    device: PoolDevice
    share: str | None
    consumed: Mapping[str, Quantity]


def allocation_result(
    claim: Object, results: Sequence[Result], classes: Mapping[str, Object], node: Object
) -> Object:
    """Return an AllocationResult, without the time at which it is written."""
    devices: dict[str, Any] = {"results": [_result(one) for one in results]}
    if config := _config(claim, results, classes):
        devices["config"] = config
    selector = _node_selector([one.device for one in results], node["metadata"]["name"])
    return {"devices": devices} | ({"nodeSelector": selector} if selector else {})


def _result(one: Result) -> Object:
    pool, name = one.device.id
    found: dict[str, Any] = {
        "request": one.request.full_name,
        "driver": pool.driver,
        "pool": pool.name,
        "device": name,
    }
    if one.request.admin:
        found["adminAccess"] = True
    if one.request.tolerations:
        found["tolerations"] = list(one.request.tolerations)
    if one.share is not None:
        found["shareID"] = one.share
    if one.consumed:
        found["consumedCapacity"] = {name: str(amount) for name, amount in one.consumed.items()}
    return found


def _config(
    claim: Object, results: Sequence[Result], classes: Mapping[str, Object]
) -> list[dict[str, Any]]:
    """Return the classes' first, each once with its class's requests, then the claim's own.

    One that is for all requests names none.
    """
    wanted = claim["spec"]["devices"]
    chosen = {one.request.name: one.request for one in results}
    requests = [chosen[one["name"]] for one in wanted["requests"] if one["name"] in chosen]
    by_class: dict[str, list[str]] = {}
    for request in requests:
        by_class.setdefault(request.device_class, []).append(request.full_name)
    found = [
        {**one, "source": "FromClass", "requests": names}
        for name, names in by_class.items()
        for one in (classes[name].get("spec") or {}).get("config") or ()
    ]
    names = {name for request in requests for name in (request.name, request.full_name)}
    found += [
        {**one, "source": "FromClaim"}
        for one in wanted.get("config") or ()
        if not one.get("requests") or not names.isdisjoint(one["requests"])
    ]
    for one in found:
        named = set(one.get("requests") or ())
        if not named or all(named & {one.name, one.full_name} for one in requests):
            one.pop("requests", None)
    return found


def _node_selector(devices: Sequence[PoolDevice], node: str) -> Object | None:
    """Return the node itself where a device is on it; else what all devices' selectors ask; None
    for anywhere."""
    terms: dict[str, dict[Hashable, Object]] = {"matchFields": {}, "matchExpressions": {}}
    for device in devices:
        if device.nodes.get("nodeName") is not None or device.binds_to_node:
            fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
            return {"nodeSelectorTerms": [{"matchFields": fields}]}
        selector = device.nodes.get("nodeSelector") or {}
        for term in selector.get("nodeSelectorTerms") or ():
            for name, known in terms.items():
                for one in term.get(name) or ():
                    same = one["key"], one["operator"], frozenset(one.get("values") or ())
                    known.setdefault(same, one)
    found = {name: list(known.values()) for name, known in terms.items() if known}
    return {"nodeSelectorTerms": [found]} if found else None

"""Allocate a pod's claims on one node, as kube-scheduler does: the first solution in order. Pure.

A depth-first search. For each claim, each of its requests, each device that the request needs, the
devices are tried as they stand in the node's slice; within one request never backwards, so that
each set of devices is tried once. `firstAvailable` tries the next alternative where the rest cannot
be allocated with this one. tests/contracts/claims compares the results with kube-scheduler's.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.claims import list_selectors
from gpumanager.kube.quantity import exact
from gpumanager.kube.selectors import selects
from gpumanager.names import CLAIM_DRIVER
from gpumanager.sim.claims.slices import PoolDevice, refuse_unknown, written

Object = Mapping[str, Any]
CLAIM_DEVICES: Final = 32
"""The most devices that one claim can be given."""
_REQUEST: Final = frozenset(
    {
        "adminAccess",
        "allocationMode",
        "capacity",
        "count",
        "deviceClassName",
        "name",
        "selectors",
        "tolerations",
    }
)
_CLOSING: Final = frozenset({"NoSchedule", "NoExecute"})

Held = Mapping[tuple[str, str], Mapping[str, Fraction]]
"""What is consumed of devices, by node and name."""


class CannotAllocate(GpuManagerError):
    """Something is wrong with a claim or a class: no node can help."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request of a claim, or one of its alternatives, with the name `gpu/small`.

    claim: its place. selectors: also those of its class. count: None for all.
    """

    claim: int
    name: str
    item: Object
    selectors: tuple[str, ...]
    count: int | None
    capacity: Mapping[str, Fraction]

    def tolerates(self, taint: Object) -> bool:
        """Return whether a toleration is for the taint; an empty key or effect means any."""
        for one in self.item.get("tolerations") or ():
            named = all(one.get(key) in (None, "", taint.get(key)) for key in ("effect", "key"))
            same = (one.get("value") or "") == (taint.get("value") or "")
            if named and (one.get("operator") == "Exists" or same):
                return True
        return False

    def takes(self, device: PoolDevice) -> bool:
        """Return whether the device is what is asked for, whatever is free of it; raises
        SelectorNotKnown and SelectorFailed."""
        return all(selects(one, CLAIM_DRIVER, device.item) for one in self.selectors) and (
            self.consumed(device) is not None
        )

    def consumed(self, device: PoolDevice) -> Mapping[str, Fraction] | None:
        """Return what it consumes of the device; None for what that does not have."""
        if not self.capacity.keys() <= device.capacity.keys():
            return None
        found = {key: one.consumed(self.capacity.get(key)) for key, one in device.capacity.items()}
        amounts = {key: amount for key, amount in found.items() if amount is not None}
        return amounts if amounts.keys() == found.keys() else None


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """One device for one request."""

    request: DeviceRequest
    device: PoolDevice
    consumed: Mapping[str, Fraction]


def held_devices(allocations: Iterable[Object]) -> Held:
    """Return what the `status.allocation` of claims hold. Admin access takes nothing."""
    held: dict[tuple[str, str], dict[str, Fraction]] = {}
    for result in (row for one in allocations for row in one["devices"].get("results") or ()):
        if not result.get("adminAccess"):
            amounts = held.setdefault((result["pool"], result["device"]), {})
            for name, amount in (result.get("consumedCapacity") or {}).items():
                amounts[name] = amounts.get(name, Fraction(0)) + (exact(amount) or 0)
    return held


def allocate(
    claims: Sequence[Object],
    classes: Mapping[str, Object],
    devices: Sequence[PoolDevice],
    held: Held,
    *,
    share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> tuple[Object, ...] | None:
    """Return the `status.allocation` of each claim, or None where they do not all fit on the node.

    classes: DeviceClass objects by name. devices: of the node. Raises CannotAllocate, NotSimulated,
    SelectorNotKnown, SelectorFailed: what is asked for is wrong, whatever the node.
    """
    requests = [
        _alternatives(place, one, classes)
        for place, claim in enumerate(claims)
        for one in claim["spec"]["devices"].get("requests") or ()
    ]
    constraints = [
        (place, one)
        for place, claim in enumerate(claims)
        for one in claim["spec"]["devices"].get("constraints") or ()
    ]
    search = _Search(requests, constraints, devices, held)
    for place in range(len(claims)):
        least = [
            min(search.count(way) for way in ways) for ways in requests if ways[0].claim == place
        ]
        if sum(least) > CLAIM_DEVICES:
            raise CannotAllocate(f"more than {CLAIM_DEVICES} devices for one claim")
    found = next(search.run(0, ()), None)
    if found is None:
        return None
    return tuple(
        _allocation(claim, [one for one in found if one.request.claim == place], classes, share_id)
        for place, claim in enumerate(claims)
    )


def _alternatives(
    claim: int, request: Object, classes: Mapping[str, Object]
) -> tuple[DeviceRequest, ...]:
    """Read one request of a claim: itself, or those of its firstAvailable in their order."""
    name, rows = request["name"], request.get("firstAvailable") or ()
    named = {f"{name}/{one['name']}": one for one in rows} or {name: request["exactly"]}
    found = []
    for full_name, item in named.items():
        if item["deviceClassName"] not in classes:
            raise CannotAllocate(f"device class {item['deviceClassName']} does not exist")
        refuse_unknown(item, _REQUEST, full_name)
        capacity = dict[str, Fraction]()
        for key, text in ((item.get("capacity") or {}).get("requests") or {}).items():
            if (amount := exact(text)) is None:
                raise CannotAllocate(f"{full_name}: {key}: {text!r} is not a quantity")
            capacity[key] = amount
        selectors = (
            *list_selectors(classes[item["deviceClassName"]].get("spec") or {}),
            *list_selectors(item),
        )
        count = None if item.get("allocationMode") == "All" else int(item.get("count") or 1)
        found.append(DeviceRequest(claim, full_name, item, selectors, count, capacity))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Search:
    """requests: of all claims, each with its alternatives. constraints: with their claim."""

    requests: Sequence[Sequence[DeviceRequest]]
    constraints: Sequence[tuple[int, Object]]
    devices: Sequence[PoolDevice]
    held: Held

    def count(self, request: DeviceRequest) -> int:
        if request.count is not None:
            return request.count
        return sum(map(request.takes, self.devices))

    def run(
        self, index: int, taken: tuple[ChosenDevice, ...]
    ) -> Iterator[tuple[ChosenDevice, ...]]:
        """Yield the choices for all requests from this one on, beside those that are taken."""
        if index == len(self.requests):
            yield taken
            return
        for request in self.requests[index]:
            count = self.count(request)
            same = sum(1 for one in taken if one.request.claim == request.claim)
            if count and same + count <= CLAIM_DEVICES:
                for choices in self._choices(request, count, 0, taken):
                    yield from self.run(index + 1, choices)

    def _choices(
        self, request: DeviceRequest, count: int, start: int, taken: tuple[ChosenDevice, ...]
    ) -> Iterator[tuple[ChosenDevice, ...]]:
        """Yield ways to take so many more devices, of those from `start` on."""
        if not count:
            yield taken
            return
        for position in range(start, len(self.devices)):
            device = self.devices[position]
            if not request.takes(device):
                continue
            if chosen := self._choice(request, device, taken):
                yield from self._choices(request, count - 1, position + 1, (*taken, chosen))
            if request.count is None:  # this one or none
                return

    def _choice(
        self, request: DeviceRequest, device: PoolDevice, taken: Sequence[ChosenDevice]
    ) -> ChosenDevice | None:
        for taint in device.item.get("taints") or ():
            if taint.get("effect") in _CLOSING and not request.tolerates(taint):
                return None
        chosen = ChosenDevice(request, device, request.consumed(device) or {})
        mine = [one for one in taken if one.request.claim == request.claim]
        rules = [rule for claim, rule in self.constraints if claim == request.claim]
        if not all(map(partial(_agrees, mine, chosen), rules)):
            if request.count is None:
                raise CannotAllocate(f"{request.name}: a constraint keeps off {device.name}")
            return None
        others = [one.consumed for one in taken if one.device is device]
        held = [self.held.get((device.node, device.name), {}), *others]
        for name, amount in chosen.consumed.items():
            used = sum((one.get(name, Fraction(0)) for one in held), amount)
            if used > device.capacity[name].value:
                return None
        return chosen


def _agrees(taken: Sequence[ChosenDevice], choice: ChosenDevice, rule: Object) -> bool:
    """Return whether the device has the same attribute as those before it, or another one."""

    def is_for(one: ChosenDevice) -> bool:
        name, wanted = one.request.name, rule.get("requests") or ()
        return not wanted or name in wanted or name.partition("/")[0] in wanted

    if not is_for(choice):
        return True
    same = rule.get("matchAttribute")
    name = same or rule["distinctAttribute"]
    value = choice.device.attribute(name)
    others = [one.device.attribute(name) for one in taken if is_for(one)]
    return value is not None and (not others or (value in others) is bool(same))


def _allocation(
    claim: Object,
    choices: Sequence[ChosenDevice],
    classes: Mapping[str, Object],
    share_id: Callable[[], str],
) -> Object:
    """Return an AllocationResult, without the time at which it is written."""
    devices: dict[str, Any] = {"results": [_result(one, share_id()) for one in choices]}
    if config := _config(claim, choices, classes):
        devices["config"] = config
    places = (
        [{"key": "metadata.name", "operator": "In", "values": [choices[0].device.node]}]
        if choices
        else []
    )
    terms = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": places}]}} if places else {}
    return {"devices": devices, **terms}


def _result(one: ChosenDevice, share: str) -> Object:
    more = {
        key: one.request.item[key]
        for key in ("adminAccess", "tolerations")
        if one.request.item.get(key)
    }
    return {
        "request": one.request.name,
        "driver": CLAIM_DRIVER,
        "pool": one.device.node,
        "device": one.device.name,
        "shareID": share,
        "consumedCapacity": {name: written(amount) for name, amount in one.consumed.items()},
        **more,
    }


def _config(
    claim: Object, choices: Sequence[ChosenDevice], classes: Mapping[str, Object]
) -> list[dict[str, Any]]:
    """Return the classes' first, each once with its class's requests, then the claim's own.

    One that is for all requests names none.
    """
    requests = {one.request.name: one.request.item["deviceClassName"] for one in choices}
    found = [
        {
            **one,
            "source": "FromClass",
            "requests": [key for key, of in requests.items() if of == name],
        }
        for name in dict.fromkeys(requests.values())
        for one in (classes[name].get("spec") or {}).get("config") or ()
    ]
    names = {part for name in requests for part in (name, name.partition("/")[0])}
    found += [
        {**one, "source": "FromClaim"}
        for one in claim["spec"]["devices"].get("config") or ()
        if not one.get("requests") or not names.isdisjoint(one["requests"])
    ]
    for one in found:
        named = set(one.get("requests") or ())
        if all(named & {name, name.partition("/")[0]} for name in requests):
            one.pop("requests", None)
    return found

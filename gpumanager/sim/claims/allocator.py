"""Allocate a pod's claims on one node, as kube-scheduler does: the first solution in order. Pure.

A depth-first search. For each claim, each of its requests, each device that the request needs, the
devices are tried as they stand in the node's slice; within one request never backwards, so that
each set of devices is tried once. `firstAvailable` tries the next alternative where the rest cannot
be allocated with this one. Every device may be in several allocations, of which each consumes some
of its capacity: a request is rounded up to the steps of the device's policy, 300Mi in steps of
256Mi to 512Mi. tests/contracts/claims compares the results with kube-scheduler's.
"""

import math
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpumanager.dra.slice import quantity
from gpumanager.errors import GpuManagerError
from gpumanager.kube.claims import (
    CLOSING_EFFECTS,
    RequestedDevices,
    base,
    list_requests,
    list_results,
    list_selectors,
    requested,
)
from gpumanager.kube.errors import Object
from gpumanager.kube.quantity import exact, whole_number
from gpumanager.kube.selectors import selects
from gpumanager.names import CAPACITY_MEMORY, CLAIM_DRIVER

Held = Mapping[tuple[str, str], Counter[str]]
"""What is consumed of devices, by node and name."""


class CannotSchedule(GpuManagerError):
    """A pod gets no node; why, in kube-scheduler's words."""


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """One device for one request. claim: its place. device: as the slice has it."""

    claim: int
    request: RequestedDevices
    device: Object
    consumed: Counter[str]

    def attribute(self, name: str) -> Object | None:
        """Return one by its full name, `gpu.tencent.com/numa`; the driver may omit its domain."""
        known, (domain, _, short) = self.device.get("attributes") or {}, name.partition("/")
        found: Object | None = known.get(name)
        return found or (known.get(short) if domain == CLAIM_DRIVER else None)


def held_devices(claims: Iterable[Object]) -> Held:
    """Return what the allocations of claims hold. Admin access takes nothing."""
    held = defaultdict[tuple[str, str], Counter[str]](Counter)
    for row in (row for claim in claims for row in list_results(claim)):
        if not row.get("adminAccess"):
            consumed = (row.get("consumedCapacity") or {}).items()
            held[row["pool"], row["device"]].update({n: whole_number(v) or 0 for n, v in consumed})
    return held


def allocate(
    claims: Sequence[Object],
    classes: Mapping[str, Object],
    node: str,
    devices: Sequence[Object],
    held: Held,
) -> tuple[Object, ...] | None:
    """Return the `status.allocation` of each claim, or None where they do not all fit on the node.

    classes: DeviceClass objects by name. devices: of the node's slice. Raises CannotSchedule,
    SelectorNotKnown, SelectorFailed, NotAClaim: what is asked for is wrong, whatever the node.
    """
    requests = [
        (place, ways)
        for place, claim in enumerate(claims)
        for ways in list_requests(claim).values()
    ]
    for name in (way.device_class for _, ways in requests for way in ways):
        if name not in classes:
            raise CannotSchedule(f"device class {name} does not exist")
    rules = [requested(claim).get("constraints") or () for claim in claims]
    found = next(_Search(requests, rules, classes, node, devices, held).run(0, ()), None)
    if found is None:
        return None
    return tuple(
        _allocation(claim, [one for one in found if one.claim == place], classes, node)
        for place, claim in enumerate(claims)
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """requests: of all claims, each with its claim's place and its alternatives. rules: constraints
    by claim."""

    requests: Sequence[tuple[int, Sequence[RequestedDevices]]]
    rules: Sequence[Sequence[Object]]
    classes: Mapping[str, Object]
    node: str
    devices: Sequence[Object]
    held: Held

    def run(
        self, index: int, taken: tuple[ChosenDevice, ...]
    ) -> Iterator[tuple[ChosenDevice, ...]]:
        """Yield the choices for all requests from this one on, beside those that are taken."""
        if index == len(self.requests):
            yield taken
            return
        claim, ways = self.requests[index]
        for way in ways:
            count = way.count
            if count is None:
                count = sum(self._consumed(way, one) is not None for one in self.devices)
            if count:
                for choices in self._choices(claim, way, count, 0, taken):
                    yield from self.run(index + 1, choices)

    def _choices(
        self,
        claim: int,
        way: RequestedDevices,
        count: int,
        start: int,
        taken: tuple[ChosenDevice, ...],
    ) -> Iterator[tuple[ChosenDevice, ...]]:
        """Yield ways to take so many more devices, of those from `start` on."""
        if not count:
            yield taken
            return
        for position in range(start, len(self.devices) - count + 1):
            device = self.devices[position]
            if (consumed := self._consumed(way, device)) is None:
                continue
            chosen = ChosenDevice(claim, way, device, consumed)
            if self._is_free(chosen, taken):
                yield from self._choices(claim, way, count - 1, position + 1, (*taken, chosen))

    def _consumed(self, way: RequestedDevices, device: Object) -> Counter[str] | None:
        """Return what it consumes of the device; None for a device that it does not ask for."""
        of_class = list_selectors(self.classes[way.device_class].get("spec") or {})
        if not all(selects(one, CLAIM_DRIVER, device) for one in (*of_class, *way.selectors)):
            return None
        asked, found = dict(way.amounts), Counter[str]()
        for name, one in (device.get("capacity") or {}).items():
            policy = one["requestPolicy"]
            steps = [whole_number(policy["validRange"][key]) or 0 for key in ("min", "max", "step")]
            least, most, step = steps
            found[name] = whole_number(policy["default"]) or 0
            if name in asked:
                more = math.ceil(((exact(asked[name]) or 0) - least) / step)
                found[name] = least + max(0, more) * step
            if found[name] > most:
                return None
        return found if asked.keys() <= found.keys() else None

    def _is_free(self, chosen: ChosenDevice, taken: Sequence[ChosenDevice]) -> bool:
        """Return whether taints, constraints and what is held of the device leave it."""
        device = chosen.device
        for taint in device.get("taints") or ():
            tolerated = any(_tolerates(one, taint) for one in chosen.request.tolerations)
            if taint.get("effect") in CLOSING_EFFECTS and not tolerated:
                return False
        mine = [one for one in taken if one.claim == chosen.claim]
        if not all(_agrees(mine, chosen, rule) for rule in self.rules[chosen.claim]):
            return False
        used = self.held.get((self.node, device["name"]), Counter()) + chosen.consumed
        for one in taken:
            if one.device is device:
                used += one.consumed
        return all(
            used[name] <= (whole_number(one["value"]) or 0)
            for name, one in (device.get("capacity") or {}).items()
        )


def _tolerates(toleration: Object, taint: Object) -> bool:
    """Return whether a toleration is for the taint; an empty key or effect means any."""
    if any(toleration.get(key) not in (None, "", taint.get(key)) for key in ("effect", "key")):
        return False
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return same or toleration.get("operator") == "Exists"


def _agrees(taken: Sequence[ChosenDevice], choice: ChosenDevice, rule: Object) -> bool:
    """Return whether the device has the same attribute as those before it, or another one."""
    wanted = {*(rule.get("requests") or ())}

    def is_for(one: ChosenDevice) -> bool:
        return not wanted or bool(wanted & {one.request.name, base(one.request.name)})

    if not is_for(choice):
        return True
    same = rule.get("matchAttribute")
    name = same or rule["distinctAttribute"]
    value = choice.attribute(name)
    others = [one.attribute(name) for one in taken if is_for(one)]
    return value is not None and (not others or (value in others) is bool(same))


def _allocation(
    claim: Object, choices: Sequence[ChosenDevice], classes: Mapping[str, Object], node: str
) -> Object:
    """Return an AllocationResult, without the time at which it is written."""
    results = []
    for one in choices:
        row: dict[str, Any] = {
            "request": one.request.name,
            "driver": CLAIM_DRIVER,
            "pool": node,
            "device": one.device["name"],
            "shareID": str(uuid.uuid4()),
            "consumedCapacity": {
                name: quantity(amount) if name == CAPACITY_MEMORY else str(amount)
                for name, amount in one.consumed.items()
            },
        }
        if one.request.admin:
            row["adminAccess"] = True
        if one.request.tolerations:
            row["tolerations"] = [*one.request.tolerations]
        results.append(row)
    devices: dict[str, Any] = {"results": results}
    if config := _config(claim, choices, classes):
        devices["config"] = config
    if not choices:
        return {"devices": devices}
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {
        "devices": devices,
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": fields}]},
    }


def _config(
    claim: Object, choices: Sequence[ChosenDevice], classes: Mapping[str, Object]
) -> list[dict[str, Any]]:
    """Return the classes' first, each once with its class's requests, then the claim's own.

    One that is for all requests names none.
    """
    requests = {one.request.name: one.request.device_class for one in choices}
    names = [{name, base(name)} for name in requests]
    found = [
        {**one, "source": "FromClass", "requests": [key for key in requests if requests[key] == of]}
        for of in dict.fromkeys(requests.values())
        for one in (classes[of].get("spec") or {}).get("config") or ()
    ]
    found += [
        {**one, "source": "FromClaim"}
        for one in requested(claim).get("config") or ()
        if not one.get("requests") or any(both & {*one["requests"]} for both in names)
    ]
    for one in found:
        if all(both & {*(one.get("requests") or ())} for both in names):
            one.pop("requests", None)
    return found

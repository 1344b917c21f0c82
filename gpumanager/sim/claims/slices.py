"""The devices of our driver's ResourceSlices, and how much of them a request consumes. Pure.

Every device may be in several allocations, of which each consumes some of its capacity: a request
is rounded up to the steps of the device's policy, 300Mi in steps of 256Mi to 512Mi. What is not
asked for is the policy's default.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.quantity import exact
from gpumanager.names import CLAIM_DRIVER

Object = Mapping[str, Any]
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_SPEC: Final = frozenset({"driver", "nodeName", "pool", "devices"})
_DEVICE: Final = frozenset({"name", "allowMultipleAllocations", "attributes", "capacity", "taints"})


class NotSimulated(GpuManagerError):
    """Something that the API has, and the simulated scheduler does not read."""


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """One capacity of a device, and its policy: from `least` to `most` in steps."""

    value: Fraction
    default: Fraction
    least: Fraction
    most: Fraction
    step: Fraction

    def consumed(self, asked: Fraction | None) -> Fraction | None:
        """Return what one request consumes; None for more than the policy allows."""
        steps = 0 if asked is None else max(0, math.ceil((asked - self.least) / self.step))
        amount = self.default if asked is None else self.least + steps * self.step
        return amount if amount <= self.most else None


@dataclass(frozen=True, slots=True)
class PoolDevice:
    """item: as the slice has it. node: also the name of its pool."""

    node: str
    item: Object
    capacity: Mapping[str, DeviceCapacity]

    @property
    def name(self) -> str:
        return str(self.item["name"])

    def attribute(self, name: str) -> Object | None:
        """Return one by its full name, `gpu.tencent.com/numa`; the driver may omit its domain."""
        known, (domain, _, short) = self.item.get("attributes") or {}, name.partition("/")
        found: Object | None = known.get(name)
        return found or (known.get(short) if domain == CLAIM_DRIVER else None)


def read_slice(item: Object) -> tuple[PoolDevice, ...]:
    """Return the devices of a slice as our driver publishes it; raises NotSimulated."""
    name, spec = f"ResourceSlice {item['metadata']['name']}", item["spec"]
    if spec["driver"] != CLAIM_DRIVER:
        raise NotSimulated(f"{name}: driver {spec['driver']} is not simulated")
    refuse_unknown(spec, _SPEC, name)
    if spec["pool"]["resourceSliceCount"] != 1 or spec["pool"]["name"] != spec.get("nodeName"):
        raise NotSimulated(f"{name}: a pool that is not one slice named as its node: not simulated")
    devices = spec.get("devices") or ()
    return tuple(_device(spec["nodeName"], one, f"{name}: {one['name']}") for one in devices)


def _device(node: str, item: Object, where: str) -> PoolDevice:
    refuse_unknown(item, _DEVICE, where)
    if not item.get("allowMultipleAllocations"):
        raise NotSimulated(f"{where}: a device without allowMultipleAllocations is not simulated")
    capacity = item.get("capacity") or {}
    return PoolDevice(node, item, {name: _capacity(one, where) for name, one in capacity.items()})


def _capacity(item: Object, where: str) -> DeviceCapacity:
    policy = item.get("requestPolicy") or {}
    refuse_unknown(policy, frozenset({"default", "validRange"}), where)
    steps = policy.get("validRange") or {}
    texts = (item["value"], policy.get("default"), *map(steps.get, ("min", "max", "step")))
    value, default, least, most, step = map(exact, texts)
    if value is None or default is None or least is None or most is None or not step:
        raise NotSimulated(f"{where}: a capacity without default, min, max and step: not simulated")
    return DeviceCapacity(value, default, least, most, step)


def refuse_unknown(item: Object, known: frozenset[str], where: str) -> None:
    """Raise NotSimulated for fields that nobody reads here."""
    if unknown := sorted(name for name in item.keys() - known if item[name]):
        raise NotSimulated(f"{where}: {', '.join(unknown)}: not simulated")


def written(amount: Fraction) -> str:
    """Return a whole number as Kubernetes writes it: 512Mi."""
    number, power = int(amount), 0
    while number and number % (1 << 10) == 0:
        number, power = number >> 10, power + 1
    return f"{number}{_BINARY[power]}"

"""Quantities of devices: exact numbers, written as Kubernetes writes them, and request policies.

A request is rounded up to what the device's policy allows: 300Mi in steps of 256Mi consumes 512Mi.
What is not asked for is the policy's default, or all of it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.quantity import exact

LARGEST_QUANTITY: Final = (1 << 63) - 1
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


class NotRepresentable(GpuManagerError):
    """A request that a policy's arithmetic cannot round; the whole pod is refused for it."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """binary: written with Ki, Mi, Gi."""

    value: Fraction
    binary: bool = False

    def __str__(self) -> str:
        if self.binary and abs(self.value) >= 1 << 10:
            return _shortened(math.ceil(self.value), 1 << 10, _BINARY)
        return _shortened(math.ceil(self.value * 10**9), 1000, _DECIMAL)


def _shortened(number: int, step: int, suffixes: tuple[str, ...]) -> str:
    if number == 0:
        return "0"
    power = 0
    while number % step == 0 and power + 1 < len(suffixes):
        number, power = number // step, power + 1
    return f"{number}{suffixes[power]}"


def read_quantity(text: object) -> Quantity:
    """Read a quantity; raises ValueError."""
    value = exact(text)
    if value is None:
        raise ValueError(f"{text!r} is not a quantity")
    return Quantity(value, binary=str(text).strip().endswith("i"))


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """default: of what is not asked. values: ascending. The range counts where `least` is given."""

    default: Quantity | None = None
    values: tuple[Quantity, ...] = ()
    least: Quantity | None = None
    most: Quantity | None = None
    step: Quantity | None = None

    @property
    def unit(self) -> int:
        """Return 1000 where the whole range is in thousandths that an int64 holds, otherwise 1."""
        bounds = [each.value * 1000 for each in (self.least, self.most, self.step) if each]
        fits = all(each.denominator == 1 and abs(each) <= LARGEST_QUANTITY for each in bounds)
        return 1000 if fits else 1

    def violated_by(self, amount: Fraction) -> bool:
        if self.values:
            return amount not in {each.value for each in self.values}
        if self.most is not None and amount > self.most.value:
            return True
        if self.step is None or self.least is None:
            return False
        steps = math.ceil(amount * self.unit) - self.least.value * self.unit
        return steps % (self.step.value * self.unit) != 0

    def rounded(self, asked: Quantity) -> Quantity:
        """Return the least allowed amount for what is asked; raises NotRepresentable."""
        if self.values:
            return next((each for each in self.values if asked.value <= each.value), asked)
        if self.least is None or self.step is None or asked.value <= self.least.value:
            return self.least if self.least and asked.value < self.least.value else asked
        unit, step, least = self.unit, self.step.value, self.least.value
        if asked.value * unit > LARGEST_QUANTITY or (
            unit > 1 and (asked.value * unit).denominator != 1
        ):
            raise NotRepresentable(f"{asked} is not in what {self.least} and {self.step} count")
        beyond = math.ceil(asked.value * unit) - least * unit
        value = least + step * math.ceil(beyond / (step * unit))
        if value * unit > LARGEST_QUANTITY:
            raise NotRepresentable(f"{asked} rounded up is more than an int64")
        return Quantity(value, self.step.binary)


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """One capacity of a device, such as its memory."""

    value: Quantity
    policy: RequestPolicy | None = None

    def consumed(self, asked: Quantity | None) -> Quantity:
        """Return what one request consumes; raises NotRepresentable."""
        if asked is None:
            found = (self.policy and self.policy.default) or self.value
        else:
            found = self.policy.rounded(asked) if self.policy else asked
        if found.value < 0:
            raise NotRepresentable(f"a negative capacity: {found}")
        return found


def read_capacity(item: Mapping[str, Any]) -> DeviceCapacity:
    """Read a device's capacity; raises ValueError, KeyError."""
    policy = item.get("requestPolicy")
    return DeviceCapacity(read_quantity(item["value"]), _policy(policy) if policy else None)


def _policy(item: Mapping[str, Any]) -> RequestPolicy:
    bounds = item.get("validRange") or {}

    def bound(of: Mapping[str, Any], name: str) -> Quantity | None:
        return read_quantity(of[name]) if name in of else None

    return RequestPolicy(
        default=bound(item, "default"),
        values=tuple(map(read_quantity, item.get("validValues") or ())),
        least=bound(bounds, "min"),
        most=bound(bounds, "max"),
        step=bound(bounds, "step"),
    )

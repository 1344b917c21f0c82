"""Allocate a pod's claims on one node, as kube-scheduler does: the first solution in order. Pure.

A depth-first search. For each claim, each of its requests, each device that the request needs, the
devices are tried in the order of their pools and slices; within one request never backwards, so
that each set of devices is tried once. `firstAvailable` tries the next alternative where none of
the rest can be allocated with this one.

Followed is the allocator of default features in k8s.io/dynamic-resource-allocation v0.37.2
(structured/internal/incubating), to which tests/contracts/claims compares the results.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.kube.quantity import exact
from gpumanager.sim.claims.quantities import Quantity
from gpumanager.sim.claims.requests import DeviceRequest, alternatives, expressions
from gpumanager.sim.claims.results import Result, allocation_result
from gpumanager.sim.claims.selectors import matches
from gpumanager.sim.claims.slices import (
    SCALARS,
    DeviceID,
    NodePool,
    PoolDevice,
    PoolID,
    PoolSlice,
    node_matches,
    pools_of,
)

Object = Mapping[str, Any]
CLAIM_DEVICES: Final = 32
"""The most devices that one claim can be given."""


class CannotAllocate(GpuManagerError):
    """Something is wrong with a claim, a class or a pool: no node can help."""


class _TooManyDevices(Exception):
    """This way the claim gets more than 32; an alternative may ask for fewer."""


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """What claims hold already. whole: devices that are not shareable. shared: what is consumed of
    the others; a device of no capacities has an empty entry."""

    whole: frozenset[DeviceID] = frozenset()
    shared: Mapping[DeviceID, Mapping[str, Fraction]] = field(default_factory=dict)

    def holds(self, device: DeviceID) -> bool:
        return device in self.whole or device in self.shared


def allocated_devices(allocations: Iterable[Object]) -> AllocatedDevices:
    """Return what the `status.allocation` of claims hold. Admin access takes nothing."""
    whole: set[DeviceID] = set()
    shared: dict[DeviceID, dict[str, Fraction]] = {}
    for allocation in allocations:
        for result in allocation["devices"].get("results") or ():
            device = DeviceID(PoolID(result["driver"], result["pool"]), result["device"])
            if result.get("adminAccess"):
                continue
            if not result.get("shareID"):
                whole.add(device)
                continue
            amounts = shared.setdefault(device, {})
            for name, amount in (result.get("consumedCapacity") or {}).items():
                amounts[name] = amounts.get(name, Fraction(0)) + (exact(amount) or 0)
    return AllocatedDevices(frozenset(whole), shared)


def allocate(
    node: Object,
    claims: Sequence[Object],
    classes: Mapping[str, Object],
    slices: Sequence[PoolSlice],
    allocated: AllocatedDevices,
    *,
    share_id: Callable[[], str] = lambda: str(uuid.uuid4()),
) -> tuple[Object, ...] | None:
    """Return the `status.allocation` of each claim, or None where they do not all fit on the node.

    classes: DeviceClass objects by name. Raises CannotAllocate, SelectorFailed, NotRepresentable:
    what is asked for is wrong, whatever the node.
    """
    search = _Search(node, claims, classes, pools_of(node, slices), allocated, share_id=share_id)
    if not search.run():
        return None
    return tuple(
        allocation_result(claim, results, classes, node)
        for claim, results in zip(claims, search.results, strict=True)
    )


@dataclass(slots=True)
class _Constraint:
    """Devices of these requests (of all where there are none) agree in an attribute, or differ."""

    requests: frozenset[str]
    attribute: str
    distinct: bool
    values: list[tuple[str, Any]] = field(default_factory=list)

    def add(self, request: DeviceRequest, device: PoolDevice) -> bool:
        """Return False, and change nothing, where the device does not go with those before it."""
        if not self._is_for(request):
            return True
        value = device.attribute(self.attribute)
        if value is None:
            return False
        if self.values and value[0] not in SCALARS:
            return False
        if self.values and (value in self.values) == self.distinct:
            return False
        self.values.append(value)
        return True

    def remove(self, request: DeviceRequest) -> None:
        if self._is_for(request):
            self.values.pop()

    def _is_for(self, request: DeviceRequest) -> bool:
        return not self.requests or not self.requests.isdisjoint({request.name, request.full_name})


class _Search:
    """The state of one search; everything that is taken is given back when a way is a dead end."""

    def __init__(
        self,
        node: Object,
        claims: Sequence[Object],
        classes: Mapping[str, Object],
        pools: Sequence[NodePool],
        allocated: AllocatedDevices,
        *,
        share_id: Callable[[], str],
    ) -> None:
        self.results: tuple[list[Result], ...] = tuple([] for _ in claims)
        self._node, self._classes, self._allocated = node, classes, allocated
        self._pools = {pool.id: pool for pool in pools}
        self._share_id = share_id
        self._devices = [
            device
            for pool in pools
            if not (pool.incomplete or pool.invalid)
            for device in pool.devices
        ]
        self._taken: Counter[tuple[DeviceID, int]] = Counter()
        self._shared: dict[DeviceID, list[Mapping[str, Fraction]]] = {}
        self._counters: dict[tuple[PoolID, tuple[str, str]], Fraction] = defaultdict(Fraction)
        self._requests = [
            [alternatives(one) for one in claim["spec"]["devices"].get("requests") or ()]
            for claim in claims
        ]
        self._constraints = [
            [
                _Constraint(  # matchAttribute counts where both are given
                    frozenset(one.get("requests") or ()),
                    one.get("matchAttribute") or one["distinctAttribute"],
                    distinct=not one.get("matchAttribute"),
                )
                for one in claim["spec"]["devices"].get("constraints") or ()
            ]
            for claim in claims
        ]
        for request in chain.from_iterable(chain.from_iterable(self._requests)):
            if request.device_class not in classes:
                raise CannotAllocate(f"device class {request.device_class} does not exist")
        self._every = {
            (claim, request.full_name): self._all_devices(request)
            for claim, requests in enumerate(self._requests)
            for options in requests
            for request in options
            if request.count is None
        }
        for claim, requests in enumerate(self._requests):
            least = sum(min(self._count(claim, one) for one in options) for options in requests)
            if least > CLAIM_DEVICES:
                metadata = claims[claim]["metadata"]
                name = f"{metadata.get('namespace', '')}/{metadata['name']}"
                raise CannotAllocate(f"{name}: more than {CLAIM_DEVICES} devices")

    def run(self) -> bool:
        try:
            return self._request(0, 0)
        except _TooManyDevices:
            return False

    def _count(self, claim: int, request: DeviceRequest) -> int:
        every = self._every.get((claim, request.full_name), ())
        return len(every) if request.count is None else request.count

    def _all_devices(self, request: DeviceRequest) -> list[PoolDevice]:
        """Return what "all" means. What each has must be enough; what is left of it comes later."""
        if broken := [pool.id for pool in self._pools.values() if pool.incomplete or pool.invalid]:
            raise CannotAllocate(f"{request.full_name}: all devices, but {broken} is being updated")
        return [
            one for one in self._devices if self._selects(request, one) and _holds(one, request, ())
        ]

    def _request(self, claim: int, index: int) -> bool:
        """Allocate everything from this request on."""
        if claim == len(self._requests):
            return True
        if index == len(self._requests[claim]):
            try:
                return self._request(claim + 1, 0)
            except _TooManyDevices:
                # The next claim is too large with whatever alternative; that it is so may depend
                # on what this one took, so that others are tried here.
                return False
        options, too_many = self._requests[claim][index], 0
        for request in options:
            try:
                if self._device(claim, index, request, 0, 0):
                    return True
            except _TooManyDevices:
                too_many += 1
        if too_many == len(options):
            raise _TooManyDevices
        return False

    def _device(self, claim: int, index: int, request: DeviceRequest, has: int, start: int) -> bool:
        """Allocate the request's next device, of those from `start` on, and all after it."""
        count = self._count(claim, request)
        if request.count is None and not count:
            return False
        if has == count:
            return self._request(claim, index + 1)
        if count - has > CLAIM_DEVICES - len(self.results[claim]):
            raise _TooManyDevices
        every = request.count is None
        candidates = (
            self._every[claim, request.full_name][has : has + 1] if every else self._devices
        )
        for position in range(0 if every else start, len(candidates)):
            device = candidates[position]
            # In this order: what is wrong with a selector shows only at devices that are free.
            if not every and not (
                self._free(claim, request, device)
                and self._selects(request, device)
                and _holds(device, request, self._held(device))
            ):
                continue
            undo = self._take(claim, request, device, must=every)
            if undo is None:
                continue
            done = False
            try:
                done = self._device(claim, index, request, has + 1, position + 1)
            finally:
                if not done:
                    _undo(undo)
            if done:
                return True
        return False

    def _held(self, device: PoolDevice) -> list[Mapping[str, Fraction]]:
        return [self._allocated.shared.get(device.id, {}), *self._shared.get(device.id, ())]

    def _free(self, claim: int, request: DeviceRequest, device: PoolDevice) -> bool:
        """Return whether nobody has it as a whole; admin access is for each claim once."""
        if request.admin:
            return not self._taken[device.id, claim]
        whole = device.id in self._allocated.whole
        return not whole and not any(
            self._taken[device.id, one] for one in range(len(self.results))
        )

    def _take(
        self, claim: int, request: DeviceRequest, device: PoolDevice, *, must: bool
    ) -> list[Callable[[], object]] | None:
        """Return how to give it back, last first; None where it cannot be had. must: it or
        nothing."""
        if not self._free(claim, request, device) or any(
            taint.get("effect") in {"NoSchedule", "NoExecute"} and not request.tolerates(taint)
            for taint in device.taints
        ):
            return None
        # The counters of a shared device were taken with its first share.
        in_use = device.id in self._allocated.shared or self._shared.get(device.id)
        counters = () if device.shareable and in_use else device.counters
        if not self._counters_suffice(device, counters):
            return None
        undo: list[Callable[[], object]] = []
        for constraint in self._constraints[claim]:
            if not constraint.add(request, device):
                _undo(undo)
                if must:
                    raise CannotAllocate(f"{request.full_name}: {device.id.name} is constrained")
                return None
            undo.append(partial(constraint.remove, request))
        if not _holds(device, request, self._held(device)):
            _undo(undo)
            return None
        for key, amount in counters:
            counter = device.id.pool, key
            undo.append(partial(self._counters.__setitem__, counter, self._counters[counter]))
            self._counters[counter] += amount
        consumed: dict[str, Quantity] = {}
        if device.shareable:
            consumed = {
                name: one.consumed(request.capacity.get(name)) for name, one in device.capacity
            }
            amounts = {name: amount.value for name, amount in consumed.items()}
            self._shared.setdefault(device.id, []).append(amounts)
            undo.append(self._shared[device.id].pop)
        else:
            self._taken[device.id, claim] += 1
            undo.append(partial(self._taken.subtract, [(device.id, claim)]))
        share = self._share_id() if device.shareable else None
        self.results[claim].append(Result(request, device, share, consumed))
        undo.append(self.results[claim].pop)
        return undo

    def _counters_suffice(
        self, device: PoolDevice, wanted: Iterable[tuple[tuple[str, str], Fraction]]
    ) -> bool:
        pool = self._pools[device.id.pool]
        taken = list(wanted)
        if not taken:
            return True
        for other in (*pool.devices, *pool.elsewhere):
            taken += other.counters if self._allocated.holds(other.id) else ()
        sums = {key: self._counters[pool.id, key] for key in pool.counters}
        for key, amount in taken:
            sums[key] += amount
        # All of the pool's, also those that this device does not need: where one is overdrawn by
        # allocations of an earlier generation, nothing that consumes counters is given out.
        return all(sums[key] <= has for key, has in pool.counters.items())

    def _selects(self, request: DeviceRequest, device: PoolDevice) -> bool:
        of_class = expressions(self._classes[request.device_class].get("spec") or {})
        wanted = (*of_class, *request.selectors)
        return all(matches(one, device) for one in wanted) and node_matches(
            self._node, device.nodes
        )


def _undo(steps: Sequence[Callable[[], object]]) -> None:
    for step in reversed(steps):
        step()


def _holds(
    device: PoolDevice, request: DeviceRequest, held: Iterable[Mapping[str, Fraction]]
) -> bool:
    """Return whether each capacity suffices for the request beside what is held, by the device's
    policy.

    A request for something that the device has not is not met; one that says nothing of a capacity
    gets its default. Raises NotRepresentable.
    """
    if not request.capacity.keys() <= dict(device.capacity).keys():
        return False
    wanted = [
        (name, one, one.consumed(request.capacity.get(name))) for name, one in device.capacity
    ]
    for name, capacity, amount in wanted:
        if capacity.policy and capacity.policy.violated_by(amount.value):
            return False
        used = sum((each.get(name, Fraction(0)) for each in held), amount.value)
        if used > capacity.value.value:
            return False
    return True

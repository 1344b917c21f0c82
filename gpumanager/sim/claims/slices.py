"""What drivers publish: devices in ResourceSlices, and the pools that one node can use. Pure.

The order is the order of allocation: pools by driver and name, slices by name, devices as they
stand in their slice. A pool of which slices are missing is not allocated from.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final, NamedTuple

from gpumanager.kube.quantity import whole_number
from gpumanager.sim.claims.quantities import DeviceCapacity, read_capacity, read_quantity

Object = Mapping[str, Any]
SCALARS: Final = frozenset({"string", "int", "bool", "version"})
"""Kinds of attributes that constraints compare."""


class PoolID(NamedTuple):
    driver: str
    name: str


class DeviceID(NamedTuple):
    """By which an allocation is remembered: slice and generation do not matter."""

    pool: PoolID
    name: str


@dataclass(frozen=True, slots=True)
class PoolDevice:
    """attributes: (kind, value) by name. shareable: may be in several allocations, of which each
    consumes some of its capacity. counters: what it takes of its pool's, by set and name.

    Equal are devices that no selector can tell from one another.
    """

    id: DeviceID = field(compare=False)
    driver: str
    shareable: bool
    attributes: tuple[tuple[str, tuple[str, Any]], ...]
    capacity: tuple[tuple[str, DeviceCapacity], ...]
    taints: tuple[Object, ...] = field(default=(), compare=False)
    counters: tuple[tuple[tuple[str, str], Fraction], ...] = field(default=(), compare=False)
    nodes: Object = field(default_factory=dict, compare=False)
    """nodeName, nodeSelector, allNodes: its own, or its slice's."""
    binds_to_node: bool = field(default=False, compare=False)

    def attribute(self, name: str) -> tuple[str, Any] | None:
        """Return one by its full name, `gpu.tencent.com/numa`; the driver may omit its domain."""
        known, (domain, _, short) = dict(self.attributes), name.partition("/")
        return known.get(name) or (known.get(short) if domain == self.driver else None)


@dataclass(frozen=True, slots=True)
class PoolSlice:
    """counters: of its pool, by set and name. per_device: each device names its nodes."""

    name: str
    pool: PoolID
    generation: int
    slices: int
    nodes: Object
    per_device: bool
    devices: tuple[PoolDevice, ...]
    counters: tuple[tuple[tuple[str, str], Fraction], ...]


@dataclass(frozen=True, slots=True)
class NodePool:
    """A pool as one node can use it. elsewhere: devices for other nodes, of the same counters.

    incomplete, invalid: nothing is allocated from it.
    """

    id: PoolID
    devices: tuple[PoolDevice, ...] = ()
    elsewhere: tuple[PoolDevice, ...] = ()
    counters: Mapping[tuple[str, str], Fraction] = field(default_factory=dict)
    incomplete: bool = False
    invalid: bool = False


def read_slice(item: Object) -> PoolSlice:
    """Read a ResourceSlice; raises KeyError, ValueError, TypeError."""
    spec, pool = item["spec"], item["spec"]["pool"]
    identity = PoolID(spec["driver"], pool["name"])
    per_device = bool(spec.get("perDeviceNodeSelection"))
    return PoolSlice(
        name=item["metadata"]["name"],
        pool=identity,
        generation=int(pool.get("generation") or 0),
        slices=int(pool["resourceSliceCount"]),
        nodes=spec,
        per_device=per_device,
        devices=tuple(
            _device(identity, one, one if per_device else spec) for one in spec.get("devices") or ()
        ),
        counters=_counters(spec.get("sharedCounters") or (), "name"),
    )


def _device(pool: PoolID, item: Object, nodes: Object) -> PoolDevice:
    attributes = (item.get("attributes") or {}).items()
    capacity = (item.get("capacity") or {}).items()
    return PoolDevice(
        id=DeviceID(pool, item["name"]),
        driver=pool.driver,
        shareable=bool(item.get("allowMultipleAllocations")),
        attributes=tuple((name, _attribute(value)) for name, value in attributes),
        capacity=tuple((name, read_capacity(value)) for name, value in capacity),
        taints=tuple(item.get("taints") or ()),
        counters=_counters(item.get("consumesCounters") or (), "counterSet"),
        nodes=nodes,
        binds_to_node=bool(item.get("bindsToNode")),
    )


def _attribute(item: Object) -> tuple[str, Any]:
    ((kind, value),) = item.items()
    return kind, tuple(value) if isinstance(value, list) else value


def _counters(sets: Iterable[Object], key: str) -> tuple[tuple[tuple[str, str], Fraction], ...]:
    return tuple(
        ((each[key], name), read_quantity(counter["value"]).value)
        for each in sets
        for name, counter in each["counters"].items()
    )


def pools_of(node: Object, slices: Sequence[PoolSlice]) -> tuple[NodePool, ...]:
    """Return all pools that have something for the node, in the order of allocation."""
    found: dict[PoolID, list[PoolSlice]] = {}
    # Those that name a node come before the others: which of two unlike slices of one pool says
    # how many there are depends on it.
    for one in sorted(slices, key=lambda one: not one.nodes.get("nodeName")):
        places = [device.nodes for device in one.devices] if one.per_device else [one.nodes]
        if not any(node_matches(node, place) for place in places):
            continue
        known = found.setdefault(one.pool, [one])
        if one.generation > known[0].generation:
            found[one.pool] = [one]
        elif one is not known[0] and one.generation == known[0].generation:
            known.append(one)
    pools = (_pool(found[pool], slices) for pool in sorted(found))
    return tuple(pool for pool in pools if pool is not None)


def _pool(mine: Sequence[PoolSlice], slices: Iterable[PoolSlice]) -> NodePool | None:
    """Return the pool; None where a newer generation has nothing for this node."""
    identity, generation = mine[0].pool, mine[0].generation
    every = list(mine)
    if len(mine) != mine[0].slices:
        every = [one for one in slices if one.pool == identity and one.generation >= generation]
        if any(one.generation > generation for one in every):
            return None
        if len(every) != mine[0].slices:
            return NodePool(identity, incomplete=True)
    counters = [pair for one in every for pair in one.counters]
    devices = _devices(sorted(mine, key=lambda one: one.name))
    elsewhere = _devices(one for one in every if one not in mine)
    # Invalid: a device or a counter twice, or a device that takes of a counter that is not there.
    known = dict(counters)
    taken = {key for device in (*devices, *elsewhere) for key, _ in device.counters}
    twice = len({device.id for device in devices}) < len(devices) or len(known) < len(counters)
    invalid = twice or not taken <= known.keys()
    return NodePool(identity, devices, elsewhere, known, invalid=invalid)


def _devices(slices: Iterable[PoolSlice]) -> tuple[PoolDevice, ...]:
    return tuple(device for one in slices for device in one.devices)


def node_matches(node: Object, nodes: Object) -> bool:
    """Return whether what is published with this nodeName, allNodes or nodeSelector is for the
    node."""
    if nodes.get("nodeName"):
        return bool(nodes["nodeName"] == node["metadata"]["name"])
    if nodes.get("allNodes"):
        return True
    selector = nodes.get("nodeSelector")
    return selector is not None and selects(selector, node)


def selects(selector: Object, node: Object) -> bool:
    """Return a core/v1 NodeSelector: any of its terms, of which all requirements."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    for term in selector.get("nodeSelectorTerms") or ():
        wanted = [*_requirements(term, "matchExpressions", labels)]
        wanted += _requirements(term, "matchFields", fields)
        if wanted and all(wanted):
            return True
    return False


def _requirements(term: Object, name: str, has: Mapping[str, str]) -> Iterator[bool]:
    for one in term.get(name) or ():
        value, values = has.get(one["key"]), one.get("values") or ()
        match one["operator"]:
            case "In":
                yield value in values
            case "NotIn":
                yield value not in values
            case "Exists":
                yield value is not None
            case "DoesNotExist":
                yield value is None
            case operator:
                found, bound = whole_number(value), whole_number("".join(values))
                if found is None or bound is None:
                    yield False
                else:
                    yield found > bound if operator == "Gt" else found < bound

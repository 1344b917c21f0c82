"""Why a claim is not allocated: on how many nodes each of its requests fails, and why. Pure.

kube-scheduler says only that it `cannot allocate all claims`. This module evaluates each request
separately on each node, by the scheduler's checks in their order: class and selectors, taints,
size, free capacity. Requests that fit separately but not together are reported as such.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpumanager.dra.claim import CORES, DRIVER, MEMORY, AllocatedDevice, base, results_of
from gpumanager.kube.quantity import whole_number
from gpumanager.placement.values import FreeGpu, Request
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, format_bytes

Object = Mapping[str, Any]
HOLDS_OFF: Final = ("NoSchedule", "NoExecute")
TOGETHER: Final = "each request fits alone, and not all of them together, or as a constraint wants"


@dataclass(frozen=True, slots=True)
class OfferedGpu:
    """A device of a node's slice. free: what no claim holds of it. tainted: by which taints."""

    node: str
    name: str
    free: FreeGpu
    taints: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class AskedDevices:
    """A request, or one of its alternatives. cores, blocks: of each device; None: all of it."""

    name: str
    device_class: str
    count: int | None = 1
    cores: int | None = None
    blocks: int | None = None
    admin: bool = False
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Object, ...] = ()


@dataclass(frozen=True, slots=True)
class NodesWithout:
    """Nodes that fail for one reason. detail: what that means on one of them, example."""

    request: str
    reason: str
    nodes: int
    example: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ClusterGpus:
    """gpus: by node, as the slices offer them. classes: selectors of the DeviceClasses, by name.

    selects: whether an expression takes a device; None where nobody here can tell.
    """

    gpus: Mapping[str, tuple[OfferedGpu, ...]]
    classes: Mapping[str, tuple[str, ...]]
    selects: Callable[[str, OfferedGpu], bool | None] = field(default=lambda *_: None)


def why_not_allocated(claim: Object, cluster: ClusterGpus) -> tuple[NodesWithout, ...]:
    """Of each request, the commonest reason first; what fails nowhere is not told."""
    found: list[NodesWithout] = []
    asked = tuple(asked_devices(claim))
    for name in dict.fromkeys(base(one.name) for one in asked):
        found += _of_request([one for one in asked if base(one.name) == name], cluster)
    if asked and cluster.gpus and not found:
        found.append(NodesWithout("", TOGETHER, len(cluster.gpus), min(cluster.gpus)))
    return tuple(found)


def _of_request(
    alternatives: Sequence[AskedDevices], cluster: ClusterGpus
) -> Iterator[NodesWithout]:
    """A node that has one of the alternatives is not told."""
    reasons: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for node, gpus in sorted(cluster.gpus.items()):
        failed = [(one.name, _failing(one, gpus, cluster)) for one in alternatives]
        if all(why for _, why in failed):
            for name, why in failed:
                reason, detail = why or ("", "")
                reasons.setdefault((name, reason), []).append((node, detail))
    for (name, reason), nodes in sorted(reasons.items(), key=lambda row: -len(row[1])):
        yield NodesWithout(name, reason, len(nodes), *nodes[0])


def _failing(
    asked: AskedDevices, gpus: Sequence[OfferedGpu], cluster: ClusterGpus
) -> tuple[str, str] | None:
    """The reason, and what it means on this node; None where the node has what is asked."""
    if asked.device_class not in cluster.classes:
        return f"DeviceClass {asked.device_class} does not exist", ""
    wanted = len(gpus) if asked.count is None else asked.count
    expressions = (*cluster.classes[asked.device_class], *asked.selectors)
    taken = [
        one for one in gpus if all(cluster.selects(text, one) is not False for text in expressions)
    ]
    if len(taken) < max(1, wanted):
        few = f"no GPU that class {asked.device_class} and the selectors take"
        if taken:
            few = f"fewer than {wanted} GPUs that class and selectors take"
        return few, f"{len(taken)} of its {len(gpus)} GPUs"
    healthy = [one for one in taken if _is_tolerated(one, asked)]
    if len(healthy) < wanted:
        return "GPUs out of use (tainted)", f"{len(taken) - len(healthy)} of {len(taken)}"
    large = [one for one in healthy if one.free.memory >= (asked.blocks or 0)]
    if len(large) < wanted:
        most = max(one.free.memory for one in healthy)
        return "no GPU that is large enough", f"its largest has {_bytes(most)}"
    fitting = [one for one in large if asked.admin or one.free.fits(_request(asked, one))]
    if len(fitting) >= wanted:
        return None
    return _short(asked, wanted, len(fitting)), _nearest(asked, large)


def _short(asked: AskedDevices, wanted: int, fitting: int) -> str:
    much = " and ".join(
        (
            "all cores" if asked.cores is None else f"{asked.cores} cores",
            "all memory" if asked.blocks is None else _bytes(asked.blocks),
        )
    )
    if wanted == 1:
        return f"no GPU with {much} free"
    return f"fewer than {wanted} GPUs with {much} free" if fitting else f"no GPU with {much} free"


def _nearest(asked: AskedDevices, gpus: Sequence[OfferedGpu]) -> str:
    """The GPU that lacks least; missing memory weighs more, as in `placement.share`."""

    def shortfall(one: OfferedGpu) -> tuple[bool, int, int]:
        request = _request(asked, one)
        cores = max(0, request.cores - one.free.cores)
        blocks = max(0, request.blocks - one.free.blocks)
        return bool(cores and blocks), blocks, cores

    nearest = min(gpus, key=shortfall)
    free = f"{nearest.free.cores} cores and {_bytes(nearest.free.blocks)} free"
    return f"the nearest, {nearest.name}, has {free}"


def _request(asked: AskedDevices, gpu: OfferedGpu) -> Request:
    """What is not asked for is all of it."""
    cores = CORES_PER_GPU if asked.cores is None else asked.cores
    return Request(cores, gpu.free.memory if asked.blocks is None else asked.blocks)


def _bytes(blocks: int) -> str:
    return format_bytes(blocks * MEMORY_BLOCK)


def _is_tolerated(gpu: OfferedGpu, asked: AskedDevices) -> bool:
    held = (one for one in gpu.taints if one.get("effect") in HOLDS_OFF)
    return all(any(_tolerates(each, one) for each in asked.tolerations) for one in held)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    same = toleration["key"] == taint.get("key")
    equal = toleration.get("value", "") == taint.get("value", "")
    return bool(same and (toleration.get("operator") == "Exists" or equal))


def asked_devices(claim: Object) -> Iterator[AskedDevices]:
    """Each request, and of one with alternatives each of these, as `gpu/shared`."""
    for one in claim["spec"]["devices"].get("requests") or ():
        if one.get("exactly"):
            yield _asked(one["name"], one["exactly"])
        for other in one.get("firstAvailable") or ():
            yield _asked(f"{one['name']}/{other['name']}", other)


def _asked(name: str, item: Object) -> AskedDevices:
    amounts = (item.get("capacity") or {}).get("requests") or {}
    cores, memory = whole_number(amounts.get(CORES)), whole_number(amounts.get(MEMORY))
    every = item.get("allocationMode") == "All"
    return AskedDevices(
        name,
        str(item.get("deviceClassName")),
        None if every else int(item.get("count") or 1),
        cores,
        None if memory is None else -(-memory // MEMORY_BLOCK),
        bool(item.get("adminAccess")),
        tuple(one["cel"]["expression"] for one in item.get("selectors") or () if one.get("cel")),
        tuple(item.get("tolerations") or ()),
    )


def offered_gpus(
    slices: Iterable[Object], claims: Iterable[Object]
) -> Mapping[str, tuple[OfferedGpu, ...]]:
    """By node. claims: of all namespaces; what they were allocated is not free."""
    held: dict[tuple[str, str], list[AllocatedDevice]] = {}
    for claim in claims:
        for one in results_of(claim):
            if not one.admin:
                held.setdefault((one.pool, one.name), []).append(one)
    found: dict[str, tuple[OfferedGpu, ...]] = {}
    for item in slices:
        spec = item["spec"]
        if spec.get("driver") == DRIVER and spec.get("nodeName"):
            gpus = (
                _gpu(spec["nodeName"], one, held.get((spec["pool"]["name"], one["name"]), ()))
                for one in spec.get("devices") or ()
            )
            found[spec["nodeName"]] = (*found.get(spec["nodeName"], ()), *gpus)
    return found


def _gpu(node: str, device: Object, held: Sequence[AllocatedDevice]) -> OfferedGpu:
    size = whole_number(((device.get("capacity") or {}).get(MEMORY) or {}).get("value")) or 0
    memory = size // MEMORY_BLOCK
    cores = sum(CORES_PER_GPU if one.cores is None else one.cores for one in held)
    blocks = sum(memory if one.blocks is None else one.blocks for one in held)
    free = FreeGpu(CORES_PER_GPU - cores, memory - blocks, len(held), memory)
    return OfferedGpu(node, device["name"], free, tuple(device.get("taints") or ()))

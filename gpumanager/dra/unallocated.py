"""Why a claim is not allocated: on how many nodes each of its requests fails, and why. Pure.

kube-scheduler says only that it `cannot allocate all claims`. This module evaluates each request
separately on each node, by the scheduler's checks in their order: class and selectors, taints,
size, free capacity. Requests that fit separately but not together are reported as such.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gpumanager.kube.claims import (
    AllocatedDevice,
    NotAClaim,
    OfferedGpu,
    RequestedDevices,
    list_devices,
    list_requests,
    read_slice,
)
from gpumanager.kube.errors import Object
from gpumanager.placement.values import Request
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, format_bytes

TOGETHER: Final = "each request fits alone, and not all of them together, or as a constraint wants"


@dataclass(frozen=True, slots=True)
class NodesWithout:
    """Nodes that fail for one reason. detail: what that means on one of them, example."""

    request: str
    reason: str
    nodes: int
    example: str
    detail: str = ""


class ClusterGpus(NamedTuple):
    """gpus: by node, as the slices offer them. classes: selectors of the DeviceClasses, by name.

    selects: whether an expression takes a device; None where nobody here can tell.
    """

    gpus: Mapping[str, tuple[OfferedGpu, ...]]
    classes: Mapping[str, tuple[str, ...]]
    selects: Callable[[str, OfferedGpu], bool | None] = lambda *_: None


def why_not_allocated(claim: Object, cluster: ClusterGpus) -> tuple[NodesWithout, ...]:
    """Return where each request fails, the commonest reason first. A node that has one of the
    alternatives of a request does not fail."""
    found: list[NodesWithout] = []
    asked = list_requests(claim)
    for alternatives in asked.values():
        reasons: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for node, gpus in sorted(cluster.gpus.items()):
            failed = {one.name: _failing(one, gpus, cluster) for one in alternatives}
            for name, why in failed.items() if all(failed.values()) else ():
                reason, detail = why or ("", "")
                reasons.setdefault((name, reason), []).append((node, detail))
        found += (
            NodesWithout(name, reason, len(nodes), *nodes[0])
            for (name, reason), nodes in sorted(reasons.items(), key=lambda row: -len(row[1]))
        )
    if asked and cluster.gpus and not found:
        found.append(NodesWithout("", TOGETHER, len(cluster.gpus), min(cluster.gpus)))
    return tuple(found)


def _failing(
    asked: RequestedDevices, gpus: Sequence[OfferedGpu], cluster: ClusterGpus
) -> tuple[str, str] | None:
    """Return the reason, and what it means on this node; None where the node has what is asked."""
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
    healthy = [
        one
        for one in taken
        if all(any(_tolerates(each, taint) for each in asked.tolerations) for taint in one.closing)
    ]
    if len(healthy) < wanted:
        return "GPUs out of use (tainted)", f"{len(taken) - len(healthy)} of {len(taken)}"
    large = [one for one in healthy if one.free.memory >= (asked.blocks or 0)]
    if len(large) < wanted:
        most = max(one.free.memory for one in healthy)
        return "no GPU that is large enough", f"its largest has {_bytes(most)}"
    fitting = [one for one in large if asked.admin or one.free.fits(_request(asked, one))]
    if len(fitting) >= wanted:
        return None
    cores = "all cores" if asked.cores is None else f"{asked.cores} cores"
    memory = "all memory" if asked.blocks is None else _bytes(asked.blocks)
    few = f"fewer than {wanted} GPUs" if fitting else "no GPU"
    return f"{few} with {cores} and {memory} free", _nearest(asked, large)


def _nearest(asked: RequestedDevices, gpus: Sequence[OfferedGpu]) -> str:
    """Return the GPU that lacks least; missing memory weighs more, as in `placement.place`."""

    def shortfall(one: OfferedGpu) -> tuple[bool, int, int]:
        request = _request(asked, one)
        cores = max(0, request.cores - one.free.cores)
        blocks = max(0, request.blocks - one.free.blocks)
        return bool(cores and blocks), blocks, cores

    nearest = min(gpus, key=shortfall)
    free = f"{nearest.free.cores} cores and {_bytes(nearest.free.blocks)} free"
    return f"the nearest, {nearest.name}, has {free}"


def _request(asked: RequestedDevices, gpu: OfferedGpu) -> Request:
    """Return what is asked of a GPU; what is not asked for is all of it."""
    cores = CORES_PER_GPU if asked.cores is None else asked.cores
    return Request(cores, gpu.free.memory if asked.blocks is None else asked.blocks)


def _bytes(blocks: int) -> str:
    return format_bytes(blocks * MEMORY_BLOCK)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if not toleration.get("key"):
        return toleration.get("operator") == "Exists"
    same = toleration["key"] == taint.get("key")
    equal = toleration.get("value", "") == taint.get("value", "")
    return bool(same and (toleration.get("operator") == "Exists" or equal))


def offered_gpus(
    slices: Iterable[Object], claims: Iterable[Object]
) -> Mapping[str, tuple[OfferedGpu, ...]]:
    """Return what is free of each node's GPUs, which claims of all namespaces hold.

    A claim that is not understood holds nothing: anybody may write one.
    """
    held: dict[str, list[AllocatedDevice]] = {}
    for claim in claims:
        with contextlib.suppress(NotAClaim):
            for one in list_devices(claim):
                if not one.admin:
                    held.setdefault(one.pool, []).append(one)
    found: dict[str, tuple[OfferedGpu, ...]] = {}
    for offered in filter(None, map(read_slice, slices)):
        gpus = offered.less(held.get(offered.node, ()))
        found[offered.node] = (*found.get(offered.node, ()), *gpus)
    return found

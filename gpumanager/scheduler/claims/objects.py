"""What nodes offer to claims, and what claims request and hold, read from JSON objects. Pure.

Selectors and constraints of a claim are not read: kube-scheduler evaluates them before it asks for
scores. Of several alternatives the first one counts.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.quantity import exact
from gpumanager.names import CLAIM_DRIVER
from gpumanager.placement.preference import Preference, read_preference
from gpumanager.placement.values import FreeGpu, Request
from gpumanager.scheduler.node import ClaimHolder, Offered
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

CORES: Final = "cores"
MEMORY: Final = "memory"
CLOSING: Final = ("NoSchedule", "NoExecute")
NO_PREFERENCE: Final = Preference()
MOST_DEVICES: Final = 32
"""Of one claim, by Kubernetes' own validation."""


@dataclass(frozen=True, slots=True)
class NodeSlice:
    """A ResourceSlice of our driver. node: also its pool. devices: name, memory blocks, and whether
    claims may have it, in the slice's order. uuids: of the GPUs, in the same order."""

    node: str
    model: str
    devices: tuple[tuple[str, int, bool], ...]
    uuids: tuple[GpuUUID, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A part of a GPU that a claim has. cores, blocks: None for all of it."""

    node: str
    device: str
    cores: int | None
    blocks: int | None


@dataclass(frozen=True, slots=True)
class AskingClaim:
    """requests: with the DeviceClass of each. allocated: it has what it asks for, on its node.

    pods: names of those that it is reserved for.
    """

    requests: tuple[tuple[str, Request], ...]
    preference: Preference = NO_PREFERENCE
    allocated: bool = False
    held: tuple[HeldDevice, ...] = ()
    pods: tuple[str, ...] = ()


def read_node_slice(item: Any) -> NodeSlice:
    """Raises KeyError, TypeError, AttributeError."""
    spec = item["spec"]
    devices = spec.get("devices") or ()
    models = ((one.get("attributes") or {}).get("productName") for one in devices)
    return NodeSlice(
        str(spec["pool"]["name"]),
        next((str(one["string"]) for one in models if one), ""),
        tuple(
            (str(one["name"]), _blocks(one["capacity"][MEMORY]["value"]), not _is_closed(one))
            for one in devices
        ),
        tuple(GpuUUID(_uuid(one)) for one in devices),
    )


def read_asking_claim(item: Any) -> AskingClaim:
    """Raises KeyError, TypeError, AttributeError, ValueError."""
    devices = (item.get("spec") or {}).get("devices") or {}
    allocation = (item.get("status") or {}).get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    users = (item.get("status") or {}).get("reservedFor") or ()
    return AskingClaim(
        tuple(_requests(devices.get("requests") or ())),
        _preference(devices.get("config") or ()),
        allocation is not None,
        tuple(_held(results)),
        tuple(str(one["name"]) for one in users if one.get("resource") == "pods"),
    )


def is_ours(device_class: Any) -> bool:
    """Whether a DeviceClass selects devices of our driver: as far as its expressions name it."""
    selectors = (device_class.get("spec") or {}).get("selectors") or ()
    return any(CLAIM_DRIVER in (one.get("cel") or {}).get("expression", "") for one in selectors)


def read_class(device_class: Any) -> Preference | None:
    """What a DeviceClass of our driver says of how a node is chosen; None for another's."""
    spec = device_class.get("spec") or {}
    return _preference(spec.get("config") or ()) if is_ours(device_class) else None


def holder_of(
    name: str, claim: AskingClaim, held: Iterable[HeldDevice], node: NodeSlice
) -> ClaimHolder:
    """Two requests of a claim may meet on one GPU."""
    devices = {
        device: (uuid, blocks)
        for (device, blocks, _), uuid in zip(node.devices, node.uuids, strict=False)
    }
    uses: dict[GpuUUID, tuple[int, int]] = {}
    for one in held:
        uuid, memory = devices.get(one.device, (GpuUUID(""), 0))
        cores, blocks = uses.get(uuid, (0, 0))
        cores += CORES_PER_GPU if one.cores is None else one.cores
        uses[uuid] = cores, blocks + (memory if one.blocks is None else one.blocks)
    return ClaimHolder(name, claim.pods, tuple((uuid, *much) for uuid, much in uses.items()))


def offered(
    node: NodeSlice, held: Iterable[HeldDevice], holders: Iterable[ClaimHolder] = ()
) -> Offered:
    """What is left of the slice's devices, in its order."""
    uses: dict[str, list[HeldDevice]] = {}
    for one in held:
        uses.setdefault(one.device, []).append(one)
    gpus = [_left(blocks, uses.get(name, ()), open_=open_) for name, blocks, open_ in node.devices]
    return Offered(node.model, tuple(gpus), tuple(holders))


def _left(blocks: int, uses: Iterable[HeldDevice], *, open_: bool) -> FreeGpu:
    free = FreeGpu(CORES_PER_GPU, blocks, 0, blocks)
    for one in uses:
        cores = free.cores - (CORES_PER_GPU if one.cores is None else one.cores)
        left = free.blocks - (blocks if one.blocks is None else one.blocks)
        free = FreeGpu(max(0, cores), max(0, left), free.processes + 1, blocks)
    return free if open_ else free._replace(cores=0, blocks=0)


def _uuid(device: Any) -> str:
    return str(((device.get("attributes") or {}).get("uuid") or {}).get("string", ""))


def _is_closed(device: Any) -> bool:
    return any(taint.get("effect") in CLOSING for taint in device.get("taints") or ())


def _requests(rows: Iterable[Any]) -> Iterator[tuple[str, Request]]:
    """Whoever does not say how much of both gets all of one, and with it the GPU."""
    for row in rows:
        one = row.get("exactly") or row["firstAvailable"][0]
        if one.get("adminAccess") or one.get("allocationMode") == "All":
            continue
        count = min(int(one.get("count") or 1), MOST_DEVICES)
        wanted = (one.get("capacity") or {}).get("requests") or {}
        cores = _cores(wanted.get(CORES, CORES_PER_GPU))
        blocks = _blocks(wanted.get(MEMORY, 0))
        if cores < CORES_PER_GPU and MEMORY in wanted:
            yield from [(one["deviceClassName"], Request(cores, blocks))] * count
        else:
            yield one["deviceClassName"], Request(CORES_PER_GPU * count, blocks)


def _held(results: Iterable[Any]) -> Iterator[HeldDevice]:
    for one in results:
        if one["driver"] == CLAIM_DRIVER and not one.get("adminAccess"):
            consumed: Mapping[str, Any] = one.get("consumedCapacity") or {}
            yield HeldDevice(
                str(one["pool"]),
                str(one["device"]),
                _cores(consumed[CORES]) if CORES in consumed else None,
                _blocks(consumed[MEMORY]) if MEMORY in consumed else None,
            )


def _preference(configs: Iterable[Any]) -> Preference:
    """As the pod's annotation of the same name; the last VcudaConfig that says a policy counts."""
    opaque = (one.get("opaque") or {} for one in configs)
    ours = (one.get("parameters") or {} for one in opaque if one.get("driver") == CLAIM_DRIVER)
    said = [policy for one in ours if (policy := str(one.get("policy") or ""))]
    return read_preference(said[-1]) if said else NO_PREFERENCE


def _cores(value: object) -> int:
    return max(1, min(CORES_PER_GPU, math.ceil(_amount(value))))


def _blocks(value: object) -> int:
    return math.ceil(_amount(value) / MEMORY_BLOCK)


def _amount(value: object) -> Fraction:
    found = exact(value)
    if found is None or found < 0:
        raise ValueError(f"{str(value)[:40]!r} is no amount")
    return found

"""The node's ResourceSlice: every GPU as a device whose cores and memory can be shared. Pure.

One pool, named as the node, with one slice: while a pool of several slices changes it is
incomplete, and the scheduler allocates nothing from it. Devices are in the order in which they
should be allocated (`offer_order`). The scheduler counts by the names of driver, pool and device;
everything else here may change at any time.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpumanager.gpu.device_attributes import DeviceAttributes
from gpumanager.gpu.tree import islands
from gpumanager.gpu.values import Gpu, GpuUUID, Topology
from gpumanager.kube.claims import device_name
from gpumanager.names import CAPACITY_CORES, CAPACITY_MEMORY, CLAIM_DRIVER
from gpumanager.placement.values import FreeGpus
from gpumanager.placement.whole import offer_order
from gpumanager.units import CORES_PER_GPU, GIB, MEMORY_BLOCK, MIB, blocks

API_VERSION: Final = "resource.k8s.io/v1"
KIND: Final = "ResourceSlice"
PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
TAINT: Final = f"{CLAIM_DRIVER}/unhealthy"
CORDON_TAINT: Final = f"{CLAIM_DRIVER}/cordoned"
"""Nothing new comes to it; what runs stays."""
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
"""Kubernetes' own, the same for all drivers: by it a GPU and a network card are matched."""
MOST_DEVICES: Final = 64
"""Of a slice in which any device is tainted; 128 otherwise."""
ATTRIBUTE_BYTES: Final = 64
"""Bytes of an attribute's text: with more the API server refuses the slice. NVML has up to 95."""


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """What the slice publishes. free: what nobody holds of each GPU. unhealthy: GPUs out of use.

    withheld: GPUs that are not offered: another interface has them. driver: its version,
    `555.58.02`. known: what else is known of them. effect: of the taint of unhealthy ones.
    cordoned: GPUs on which an operator wants nothing new; None: not known yet.
    """

    topology: Topology
    free: FreeGpus
    unhealthy: Collection[GpuUUID] = frozenset()
    withheld: Collection[GpuUUID] = frozenset()
    driver: str = ""
    known: DeviceAttributes = field(default_factory=DeviceAttributes)
    effect: str = "NoSchedule"
    cordoned: Collection[GpuUUID] | None = frozenset()


def slice_name(node: str) -> str:
    return f"{node}-{CLAIM_DRIVER}"


def resource_slice(node: str, node_uid: str, gpus: NodeGpus) -> dict[str, Any]:
    """Return the object. It goes with its node, if that is known by its UID."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid, "controller": True}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": slice_name(node)} | ({"ownerReferences": [owner]} if node_uid else {}),
        "spec": {
            "driver": CLAIM_DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices(gpus),
        },
    }


def devices(gpus: NodeGpus) -> list[dict[str, Any]]:
    """Return the slice's devices, in the order in which they should be taken."""
    topology = gpus.topology
    # GPUs that NVLink connects, by the lowest index among them; none for GPUs without NVLink.
    domains: dict[GpuUUID, int] = {}
    for island in islands(topology):
        members = [topology.gpus[place] for place in island.members]
        domains |= dict.fromkeys((gpu.uuid for gpu in members), min(gpu.index for gpu in members))
    found: list[dict[str, Any]] = []
    for gpu in offer_order(topology, gpus.free):
        if gpu.uuid in gpus.withheld:
            continue
        memory = quantity(blocks(gpu.memory) * MEMORY_BLOCK)
        taints = [(TAINT, gpus.effect)] * (gpu.uuid in gpus.unhealthy)
        taints += [(CORDON_TAINT, "NoSchedule")] * (gpu.uuid in (gpus.cordoned or ()))
        listed = [{"key": key, "value": "true", "effect": effect} for key, effect in taints]
        device = {
            "name": device_name(gpu.uuid),
            "allowMultipleAllocations": True,
            "attributes": _attributes(gpu, gpus, domains.get(gpu.uuid)),
            "capacity": {
                CAPACITY_CORES: _capacity(str(CORES_PER_GPU), "1"),
                CAPACITY_MEMORY: _capacity(memory, quantity(MEMORY_BLOCK)),
            },
        }
        found.append(device | ({"taints": listed} if listed else {}))
    return found[:MOST_DEVICES]


def differences(
    found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return how published devices differ, in words; not in their order or their taints."""
    there = {one["name"]: one for one in found}
    should = {one["name"]: one for one in wanted}
    fields = ("allowMultipleAllocations", "attributes", "capacity")
    return (
        *(f"{name} is missing" for name in should if name not in there),
        *(f"{name} is no GPU of this node" for name in there if name not in should),
        *(
            f"{name}: {field} differs"
            for name, one in should.items()
            for field in fields
            if name in there and there[name].get(field) != one.get(field)
        ),
    )


def _capacity(whole: str, step: str) -> dict[str, Any]:
    """Return a capacity of which a claim gets all where it does not say how much."""
    steps = {"min": step, "step": step, "max": whole}
    return {"value": whole, "requestPolicy": {"default": whole, "validRange": steps}}


def _attributes(gpu: Gpu, gpus: NodeGpus, nvlink: int | None) -> dict[str, Any]:
    """Return a device's attributes; names without a domain are in the driver's."""
    free = gpus.free.of(gpu)
    texts = {
        "uuid": gpu.uuid,
        "productName": gpu.model,
        "architecture": gpus.known.architectures.get(gpu.uuid, ""),
        PCIE_ROOT: gpus.known.pcie_roots.get(gpu.uuid, ""),
    }
    versions = {"driverVersion": semantic(gpus.driver), "cudaVersion": semantic(gpus.known.cuda)}
    numbers = {
        "numa": gpu.numa_node,
        "nvlink": nvlink,
        "freeCores": free.cores,
        "freeMemory": free.blocks * MEMORY_BLOCK // MIB,
    }
    return {
        **{
            name: {"string": text.encode()[:ATTRIBUTE_BYTES].decode(errors="ignore").strip()}
            for name, text in texts.items()
            if text
        },
        **{name: {"version": text} for name, text in versions.items() if text},
        **{name: {"int": number} for name, number in numbers.items() if number is not None},
    }


def semantic(version: str) -> str:
    """Return `555.58.02` as semver.org has it, `555.58.2`; nothing for what is no version."""
    parts = version.split(".")
    if not 1 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() for part in parts):  # noqa: PLR2004 - major, minor, patch
        return ""
    return ".".join(str(int(part)) for part in (*parts, "0", "0")[:3])


def quantity(amount: int) -> str:
    """Return bytes as the API server itself writes them: `16Gi`, `256Mi`."""
    return f"{amount // GIB}Gi" if amount % GIB == 0 else f"{amount // MIB}Mi"

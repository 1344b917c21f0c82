"""ResourceClaims, ResourceSlices and what pods use of claims, read from JSON objects. Pure.

Driver, extender, `explain`, doctor and simulator read them here. An object that is not understood
raises NotAClaim, whatever is wrong with it.

Kubernetes 1.34 and later, `resource.k8s.io/v1`. An allocation has one result per device. If an
alternative was allocated, its result has both names, `gpu/t0`; the kubelet knows only the request's
own name, `gpu`. A pod names its claims; a container names one of them, and optionally one request
of it. The kubelet gives a container without a request the devices of all requests.
"""

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import PodUID
from gpumanager.kube.errors import NOT_UNDERSTOOD, Object
from gpumanager.kube.pod import claim_names, wants_graphics
from gpumanager.kube.quantity import exact, whole_number
from gpumanager.kube.vcuda_config import VcudaConfig, read_vcuda_config
from gpumanager.names import CAPACITY_CORES, CAPACITY_MEMORY, CLAIM_DRIVER, VCORE, VMEMORY
from gpumanager.placement.values import FreeGpu
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

ALL: Final = ""
"""The request of a container that names none."""
ENDED: Final = ("Succeeded", "Failed")
"""Phases after which a pod never runs again."""
NAME_DIGITS: Final = 16
"""Hexadecimal ones of a device's name: 64 bits, so that no two GPUs of a node are alike."""
CLOSING_EFFECTS: Final = ("NoSchedule", "NoExecute")
"""Effects of taints that keep claims off a device."""
SHOWN_LETTERS: Final = 40
"""Letters of a wrong value that an error repeats."""


class NotAClaim(GpuManagerError, ValueError):
    """An object that is not understood, or a claim that the driver cannot prepare; says why."""


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One result. cores, blocks: None where the allocation does not say: all of the GPU.

    pool: its node's name. share: its shareID, of a device that several claims may have. admin: to
    look only.
    """

    request: str
    name: str
    pool: str
    share: str | None = None
    cores: int | None = None
    blocks: int | None = None
    admin: bool = False

    def amounts(self, blocks: int) -> tuple[int, int]:
        """Return the cores and the memory blocks that it takes of a GPU with so many blocks."""
        cores = CORES_PER_GPU if self.cores is None else self.cores
        return cores, blocks if self.blocks is None else self.blocks


@dataclass(frozen=True, slots=True)
class ClaimUser:
    """A pod that may use it."""

    uid: PodUID
    name: str


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """devices: those of this driver, in the order of the allocation; none while not allocated.

    configs: for these requests, or all where none are named; of each field the last that says it
    counts.
    """

    uid: str
    namespace: str
    name: str
    devices: tuple[AllocatedDevice, ...] = ()
    configs: tuple[tuple[tuple[str, ...], VcudaConfig], ...] = ()
    reserved_for: tuple[ClaimUser, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def requests(self) -> Mapping[str, tuple[AllocatedDevice, ...]]:
        """Return the devices by the request names that pods use."""
        found: dict[str, tuple[AllocatedDevice, ...]] = {}
        for one in self.devices:
            name = base(one.request)
            found[name] = (*found.get(name, ()), one)
        return found

    def config(self, request: str) -> VcudaConfig:
        """request: as the allocation has it."""
        found = VcudaConfig()
        for names, config in self.configs:
            if not names or request in names or base(request) in names:
                found = config.over(found)
        return found


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """claim: the ResourceClaim's name. request: ALL for whatever it has. graphics: whether the
    container may get OpenGL, EGL and Vulkan."""

    container: str
    claim: str
    request: str
    graphics: bool = True


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A pod, and what its containers use, init containers and sidecars too.

    ended: it has, or is told to. finished: it has. shares: containers that ask for GPUs by device
    plugins, too.
    """

    uid: PodUID
    namespace: str
    name: str
    uses: tuple[ClaimUse, ...] = ()
    ended: bool = False
    finished: bool = False
    shares: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """A request of a claim, or one of its alternatives, `gpu/t0`, of any driver. count: None for
    all devices. cores, blocks: of each device; None: all of it. amounts: as the claim has them.
    """

    name: str
    device_class: str
    count: int | None = 1
    cores: int | None = None
    blocks: int | None = None
    admin: bool = False
    selectors: tuple[str, ...] = ()
    tolerations: tuple[Object, ...] = ()
    amounts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class OfferedGpu:
    """A device of a node's slice. free: all of it, or what claims leave of it."""

    node: str
    name: str
    uuid: GpuUUID
    free: FreeGpu
    model: str = ""
    taints: tuple[Object, ...] = ()

    @property
    def closing(self) -> tuple[Object, ...]:
        """Return its taints that keep off claims which do not tolerate them."""
        return tuple(one for one in self.taints if one.get("effect") in CLOSING_EFFECTS)


@dataclass(frozen=True, slots=True)
class NodeSlice:
    """A ResourceSlice of this driver. node: also its pool. gpus: in the slice's order."""

    node: str
    gpus: tuple[OfferedGpu, ...]

    def less(self, held: Iterable[AllocatedDevice]) -> tuple[OfferedGpu, ...]:
        """Return its GPUs with what these devices leave free of them."""
        free = {one.name: one.free for one in self.gpus}
        for one in held:
            if one.name in free:
                left = free[one.name]
                cores, blocks = one.amounts(left.memory)
                cores, blocks = max(0, left.cores - cores), max(0, left.blocks - blocks)
                free[one.name] = FreeGpu(cores, blocks, left.processes + 1, left.memory)
        return tuple(replace(one, free=free[one.name]) for one in self.gpus)


def device_name(gpu: GpuUUID) -> str:
    """Return a DNS label that stays with the GPU: the scheduler counts by it alone."""
    return f"gpu-{hashlib.sha256(gpu.encode()).hexdigest()[:NAME_DIGITS]}"


def base(request: str) -> str:
    """Return the name of a request without its alternative."""
    return request.partition("/")[0]


@contextmanager
def _reading(kind: str) -> Iterator[None]:
    try:
        yield
    except NotAClaim:
        raise
    except NOT_UNDERSTOOD as error:
        raise NotAClaim(f"no {kind} ({repr(error)[:200]})") from error


@_reading("ResourceClaim")
def read_claim(item: Any) -> ResourceClaim:
    """Return a claim as the driver prepares it, with parameters that mean something."""
    configs = list_configs(_allocated(item))
    return ResourceClaim(*_identity(item), list_devices(item), configs, list_users(item))


@_reading("ResourceClaim")
def list_devices(item: Any) -> tuple[AllocatedDevice, ...]:
    """Return what a claim was allocated of this driver."""
    devices = list[AllocatedDevice]()
    for one in list_results(item):
        if one["driver"] != CLAIM_DRIVER:
            continue
        consumed, amounts = one.get("consumedCapacity") or {}, dict[str, int]()
        for name in (CAPACITY_CORES, CAPACITY_MEMORY):
            if name not in consumed:
                continue
            amount = whole_number(consumed[name])
            if amount is None or amount < 1 or (name == CAPACITY_CORES and amount > CORES_PER_GPU):
                shown = str(consumed[name])[:SHOWN_LETTERS]
                raise NotAClaim(f"consumedCapacity.{name} is {shown!r}")
            amounts[name] = amount
        memory, share = amounts.get(CAPACITY_MEMORY), one.get("shareID")
        device = AllocatedDevice(
            request=str(one["request"]),
            name=str(one["device"]),
            pool=str(one["pool"]),
            share=None if share is None else str(share),
            cores=amounts.get(CAPACITY_CORES),
            blocks=None if memory is None else -(-memory // MEMORY_BLOCK),
            admin=bool(one.get("adminAccess")),
        )
        devices.append(device)
    return tuple(devices)


@_reading("ResourceClaim")
def list_results(item: Any) -> Sequence[Object]:
    """Return what a claim was allocated of all drivers, as the API server has it."""
    return _allocated(item).get("results") or ()


@_reading("ResourceClaim")
def is_allocated(item: Any) -> bool:
    """Return whether a claim has its devices, of whichever drivers."""
    return (item.get("status") or {}).get("allocation") is not None


@_reading("ResourceClaim")
def list_users(item: Any) -> tuple[ClaimUser, ...]:
    """Return the pods that a claim is reserved for."""
    return tuple(
        ClaimUser(PodUID(str(one["uid"])), str(one["name"]))
        for one in (item.get("status") or {}).get("reservedFor") or ()
        if one.get("resource") == "pods" and not one.get("apiGroup")
    )


@_reading("ResourceClaim")
def list_requests(item: Any) -> Mapping[str, tuple[RequestedDevices, ...]]:
    """Return the requests of a claim by their names, each with its alternatives, if it has any."""
    found = dict[str, tuple[RequestedDevices, ...]]()
    for one in requested(item).get("requests") or ():
        name, alternatives = str(one["name"]), one.get("firstAvailable") or ()
        found[name] = (
            *((_request(name, one["exactly"]),) if one.get("exactly") else ()),
            *(_request(f"{name}/{other['name']}", other) for other in alternatives),
        )
    return found


@_reading("VcudaConfig")
def list_configs(devices: Any) -> tuple[tuple[tuple[str, ...], VcudaConfig], ...]:
    """Return the parameters for this driver, each with the requests that it is for.

    devices: of an allocation, where those of the class come first, then the claim's; of a claim's
    spec; or the spec of a DeviceClass.
    """
    opaque = [(one, one.get("opaque") or {}) for one in devices.get("config") or ()]
    try:
        return tuple(
            (tuple(map(str, one.get("requests") or ())), read_vcuda_config(own.get("parameters")))
            for one, own in opaque
            if own.get("driver") == CLAIM_DRIVER
        )
    except ValueError as error:
        raise NotAClaim(str(error)) from error


@_reading("list of selectors")
def list_selectors(item: Any) -> tuple[str, ...]:
    """Return the CEL expressions of a request, or of the spec of a DeviceClass."""
    return tuple(
        str(one["cel"]["expression"]) for one in item.get("selectors") or () if one.get("cel")
    )


@_reading("ResourceSlice")
def read_slice(item: Any) -> NodeSlice | None:
    """Return a node's slice of this driver; None for another one."""
    spec = item["spec"]
    if spec["driver"] != CLAIM_DRIVER or not spec.get("nodeName"):
        return None
    node = str(spec["pool"]["name"])
    gpus = list[OfferedGpu]()
    for one in spec.get("devices") or ():
        size = _units(one["capacity"][CAPACITY_MEMORY]["value"], CAPACITY_MEMORY, MEMORY_BLOCK)
        attributes = one.get("attributes") or {}
        model, gpu = ((attributes.get(key) or {}).get("string") for key in ("productName", "uuid"))
        offered = OfferedGpu(
            node,
            str(one["name"]),
            GpuUUID(str(gpu or "")),
            FreeGpu(CORES_PER_GPU, size, 0, size),
            str(model or ""),
            tuple(map(dict, one.get("taints") or ())),
        )
        gpus.append(offered)
    return NodeSlice(node, tuple(gpus))


@_reading("Pod")
def read_pod_claims(item: Any) -> PodClaims:
    """Return what a pod uses of which claims."""
    uid, namespace, name = _identity(item)
    spec, status = item.get("spec") or {}, item.get("status") or {}
    finished, claims = status.get("phase") in ENDED, claim_names(spec, status)
    uses, shares = list[ClaimUse](), list[str]()
    for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        resources = one.get("resources") or {}
        for used in resources.get("claims") or ():
            if used["name"] in claims:
                claim, request = claims[used["name"]], str(used.get("request") or ALL)
                graphics = wants_graphics(one)
                uses.append(ClaimUse(str(one["name"]), claim, request, graphics))
        limits = resources.get("limits") or {}
        if any(str(limits.get(resource, "0")) != "0" for resource in (VCORE, VMEMORY)):
            shares.append(str(one["name"]))
    # kube-scheduler makes a claim for a container that asks for an extended resource of a
    # DeviceClass; the pod's spec does not name that claim.
    extended = status.get("extendedResourceClaimStatus") or {}
    for one in extended.get("requestMappings") or ():
        container, request = str(one["containerName"]), str(one["requestName"])
        uses.append(ClaimUse(container, str(extended["resourceClaimName"]), request))
    return PodClaims(
        PodUID(uid),
        namespace,
        name,
        tuple(uses),
        ended=finished or bool(item["metadata"].get("deletionTimestamp")),
        finished=finished,
        shares=tuple(shares),
    )


@_reading("ResourceClaim")
def requested(item: Any) -> Any:
    """Return `devices` of a claim's spec."""
    return (item.get("spec") or {}).get("devices") or {}


def _identity(item: Any) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return str(metadata["uid"]), str(metadata["namespace"]), str(metadata["name"])


def _allocated(item: Any) -> Any:
    return ((item.get("status") or {}).get("allocation") or {}).get("devices") or {}


def _request(name: str, item: Any) -> RequestedDevices:
    amounts = (item.get("capacity") or {}).get("requests") or {}
    cores, memory = amounts.get(CAPACITY_CORES), amounts.get(CAPACITY_MEMORY)
    return RequestedDevices(
        name,
        str(item.get("deviceClassName") or ""),
        None if item.get("allocationMode") == "All" else max(1, int(item.get("count") or 1)),
        None if cores is None else _units(cores, CAPACITY_CORES, 1),
        None if memory is None else _units(memory, CAPACITY_MEMORY, MEMORY_BLOCK),
        bool(item.get("adminAccess")),
        list_selectors(item),
        tuple(map(dict, item.get("tolerations") or ())),
        tuple((str(key), str(amount)) for key, amount in amounts.items()),
    )


def _units(value: Any, name: str, unit: int) -> int:
    """Return so many units, upwards, as kube-scheduler rounds it."""
    amount = exact(value)
    if amount is None or amount < 0:
        raise NotAClaim(f"capacity {name}: {str(value)[:SHOWN_LETTERS]!r} is no amount")
    return math.ceil(amount / unit)

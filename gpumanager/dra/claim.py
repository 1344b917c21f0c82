"""A ResourceClaim, reduced to what this node's driver needs, read from its JSON object. Pure.

Kubernetes 1.34 and later, `resource.k8s.io/v1`. An allocation has one result per device. If an
alternative was allocated, its result has both names, `gpu/t0`; the kubelet knows only the request's
own name, `gpu`.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import PodUID
from gpumanager.kube.quantity import whole_number
from gpumanager.kube.vcuda_config import VcudaConfig, read_vcuda_config
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

DRIVER: Final = "gpu.tencent.com"
CORES: Final = "cores"
MEMORY: Final = "memory"
DIGITS: Final = 16
"""Hexadecimal ones of a device's name: 64 bits, so that no two GPUs of a node are alike."""


def device_name(gpu: GpuUUID) -> str:
    """A DNS label that stays with the GPU: the scheduler's books go by it alone."""
    return f"gpu-{hashlib.sha256(gpu.encode()).hexdigest()[:DIGITS]}"


class NotAClaim(ValueError):
    """A claim that this driver cannot prepare; says why."""


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """One result. cores, blocks: None where the allocation does not say: all of the GPU.

    share: its shareID, of a device that several claims may have. admin: to look only.
    """

    request: str
    name: str
    pool: str
    share: str | None = None
    cores: int | None = None
    blocks: int | None = None
    admin: bool = False


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
        """By the names that pods use."""
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


def base(request: str) -> str:
    """Without its alternative."""
    return request.partition("/")[0]


def read_claim(item: Any) -> ResourceClaim:
    """Raises NotAClaim for what is none, or has parameters that mean nothing."""
    try:
        metadata, status = item["metadata"], item.get("status") or {}
        allocated = _allocated(item)
        return ResourceClaim(
            uid=str(metadata["uid"]),
            namespace=str(metadata["namespace"]),
            name=str(metadata["name"]),
            devices=results_of(item),
            configs=tuple(_configs(allocated.get("config") or ())),
            reserved_for=tuple(_users(status.get("reservedFor") or ())),
        )
    except NotAClaim:
        raise
    except ValueError as error:
        raise NotAClaim(str(error)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise NotAClaim(f"no ResourceClaim ({error!r})") from error


def results_of(item: Any) -> tuple[AllocatedDevice, ...]:
    """What a ResourceClaim was allocated of this driver. Raises NotAClaim, KeyError, TypeError."""
    return tuple(_devices(_allocated(item).get("results") or ()))


def _allocated(item: Any) -> Mapping[str, Any]:
    return ((item.get("status") or {}).get("allocation") or {}).get("devices") or {}


def _devices(results: Sequence[Any]) -> Iterator[AllocatedDevice]:
    for one in results:
        if one["driver"] == DRIVER:
            consumed = one.get("consumedCapacity") or {}
            memory = _amount(consumed, MEMORY)
            yield AllocatedDevice(
                request=one["request"],
                name=one["device"],
                pool=one["pool"],
                share=one.get("shareID"),
                cores=_amount(consumed, CORES),
                blocks=None if memory is None else -(-memory // MEMORY_BLOCK),
                admin=bool(one.get("adminAccess")),
            )


def _amount(consumed: Mapping[str, Any], name: str) -> int | None:
    if name not in consumed:
        return None
    amount = whole_number(consumed[name])
    if amount is None or amount < 1 or (name == CORES and amount > CORES_PER_GPU):
        raise NotAClaim(f"consumedCapacity.{name} is {str(consumed[name])[:40]!r}")
    return amount


def _configs(rows: Sequence[Any]) -> Iterator[tuple[tuple[str, ...], VcudaConfig]]:
    """Of the class first, then of the claim, as the scheduler lists them."""
    for one in rows:
        opaque = one.get("opaque") or {}
        if opaque.get("driver") == DRIVER:
            config = read_vcuda_config(opaque.get("parameters"))
            yield tuple(one.get("requests") or ()), config


def _users(rows: Sequence[Any]) -> Iterator[ClaimUser]:
    for one in rows:
        if one.get("resource") == "pods" and not one.get("apiGroup"):
            yield ClaimUser(PodUID(one["uid"]), one["name"])

"""What the extender weighs of claims, slices and DeviceClasses. Pure.

Selectors and constraints of a claim are not evaluated: kube-scheduler does that before it asks for
scores. Of several alternatives the first one counts.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.claims import (
    AllocatedDevice,
    NodeSlice,
    NotAClaim,
    OfferedGpu,
    is_allocated,
    list_configs,
    list_devices,
    list_requests,
    list_selectors,
    list_users,
    requested,
)
from gpumanager.names import CLAIM_DRIVER
from gpumanager.placement.preference import Preference, read_preference
from gpumanager.placement.values import FreeGpu, Request
from gpumanager.scheduler.node import ClaimHolder, Offered
from gpumanager.units import CORES_PER_GPU

NO_PREFERENCE: Final = Preference()
CLAIM_DEVICES: Final = 32
"""The most of one claim, by Kubernetes' own validation."""


@dataclass(frozen=True, slots=True)
class AskingClaim:
    """requests: with the DeviceClass of each. held: what it was allocated, if it was.

    pods: names of those that it is reserved for.
    """

    requests: tuple[tuple[str, Request], ...]
    preference: Preference = NO_PREFERENCE
    allocated: bool = False
    held: tuple[AllocatedDevice, ...] = ()
    pods: tuple[str, ...] = ()


def read_asking_claim(item: Any) -> AskingClaim:
    """Read a claim; raises NotAClaim."""
    rows: list[tuple[str, Request]] = []
    for asked in (one for tried in list_requests(item).values() for one in tried[:1]):
        if asked.admin or asked.count is None:
            continue
        count = min(asked.count, CLAIM_DEVICES)
        cores = CORES_PER_GPU if asked.cores is None else max(1, asked.cores)
        if cores < CORES_PER_GPU and asked.blocks is not None:
            rows += [(asked.device_class, Request(cores, asked.blocks))] * count
        else:  # a request without cores or without memory gets the whole GPU
            rows.append((asked.device_class, Request(CORES_PER_GPU * count, asked.blocks or 0)))
    return AskingClaim(
        tuple(rows),
        _preference(requested(item)),
        is_allocated(item),
        tuple(one for one in list_devices(item) if not one.admin),
        tuple(one.name for one in list_users(item)),
    )


def read_class(device_class: Any) -> Preference | None:
    """Return what a DeviceClass of our driver says of how a node is chosen; None for another's,
    of which no selector names our driver."""
    spec = device_class.get("spec") or {}
    ours = any(CLAIM_DRIVER in text for text in list_selectors(spec))
    return _preference(spec) if ours else None


def holder_of(
    name: str, claim: AskingClaim, held: Iterable[AllocatedDevice], node: NodeSlice
) -> ClaimHolder:
    """Return what a claim holds by GPU: two of its requests may meet on one."""
    gpus = {one.name: one for one in node.gpus}
    unknown = OfferedGpu(node.node, "", GpuUUID(""), FreeGpu(0))
    uses: dict[GpuUUID, tuple[int, int]] = {}
    for one in held:
        gpu = gpus.get(one.name, unknown)
        (cores, blocks), before = one.amounts(gpu.free.memory), uses.get(gpu.uuid, (0, 0))
        uses[gpu.uuid] = before[0] + cores, before[1] + blocks
    return ClaimHolder(name, claim.pods, tuple((uuid, *much) for uuid, much in uses.items()))


def offered(
    node: NodeSlice, held: Iterable[AllocatedDevice], holders: Iterable[ClaimHolder] = ()
) -> Offered:
    """Return what is left of the slice's devices, in its order."""
    gpus = node.less(held)
    return Offered(
        next((one.model for one in gpus if one.model), ""),
        tuple(one.free._replace(cores=0, blocks=0) if one.closing else one.free for one in gpus),
        tuple(holders),
    )


def _preference(devices: Any) -> Preference:
    """Return the policy of the last VcudaConfig that has one, as of the pod's annotation.

    Parameters that the driver refuses prefer nothing: what the claim holds counts all the same.
    """
    try:
        said = [config.policy for _, config in list_configs(devices) if config.policy]
    except NotAClaim:
        return NO_PREFERENCE
    return read_preference(said[-1]) if said else NO_PREFERENCE

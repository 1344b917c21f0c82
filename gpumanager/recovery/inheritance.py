"""What gpu-manager, the original, had promised on this node when we took its place. Pure.

Its checkpoint names each container's GPUs by minor, its cores and its bytes; the kubelet's books
have the device IDs, which say nothing (`tencent.com/vcuda-core-17`). Its pods keep both: the IDs
are advertised as long as a pod holds them, because a kubelet that no longer finds them ends the pod
when it starts again, and the same amount of our own IDs is left out meanwhile.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpumanager.deviceplugin.advertised import ORIGINAL
from gpumanager.deviceplugin.identity.lifecycle import Checkpoint, has_ended
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.journal import Allocation, Claimant, State
from gpumanager.isolation.answer import ENV_ALLOCATION, ENV_VISIBLE
from gpumanager.kubelet.pods import PodUID
from gpumanager.names import ANNOTATION_DEVICE, VCORE, VMEMORY
from gpumanager.placement.place import evaluator_of
from gpumanager.placement.values import Request
from gpumanager.recovery.evidence import Evidence, Key, allocation_of
from gpumanager.units import MEMORY_BLOCK, natural_number
from gpumanager.virtual.values import AllocationID

FILE_NAME: Final = "gpumanager_internal_checkpoint"
WHY: Final = "inherited from gpu-manager"
DEVICE: Final = "/dev/nvidia"


class OriginalUnreadable(GpuManagerError):
    """The original's checkpoint is there and cannot be understood."""

    def __init__(self, path: Path | str, cause: str) -> None:
        super().__init__(
            f"{path}: cannot read gpu-manager's checkpoint: {cause}. If none of its pods runs on "
            "this node, remove it"
        )


@dataclass(frozen=True, slots=True)
class Inherited:
    """What one container was promised. minors: of its GPUs. memory: bytes."""

    pod_uid: PodUID
    container: str
    minors: tuple[int, ...]
    cores: int
    memory: int


def read_original(path: Path) -> tuple[Inherited, ...]:
    """Nothing where there is no such file; raises OriginalUnreadable."""
    try:
        return parse_original(path.read_bytes(), path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise OriginalUnreadable(path, error.strerror or str(error)) from error


def parse_original(text: bytes, path: Path | str = FILE_NAME) -> tuple[Inherited, ...]:
    """Raises OriginalUnreadable."""
    try:
        pods = json.loads(text)["PodGPUMapping"] or {}
        return tuple(_inherited(pods))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OriginalUnreadable(path, f"unknown shape ({error})") from error


def _inherited(pods: Mapping[str, Any]) -> Iterator[Inherited]:
    for uid, containers in pods.items():
        for name, one in (containers or {}).items():
            minors = tuple(int(device.removeprefix(DEVICE)) for device in one["Devices"] or ())
            yield Inherited(PodUID(uid), name, minors, int(one["Cores"]), int(one["Memory"]))


def inherit(
    topology: Topology, original: tuple[Inherited, ...], evidence: Evidence, now: float
) -> tuple[Allocation, ...]:
    """As allocations, of pods that have not ended.

    Where the kubelet has its books and gives a container nothing, its pod is gone.
    """
    known = {(one.pod_uid, one.container): one for one in _alive(topology, evidence)}
    known |= dict(_answered(topology, evidence))
    known |= {(one.pod_uid, one.container): one for one in original}
    found = (_allocation(topology, one, evidence, now) for one in known.values())
    return tuple(a for a in found if a is not None)


def _answered(topology: Topology, evidence: Evidence) -> Iterator[tuple[Key, Inherited]]:
    """By what the original answered them, which the kubelet keeps."""
    for holder in evidence.checkpoint or ():
        if holder.resource != VCORE or not all(i.startswith(ORIGINAL) for i in holder.ids):
            continue
        key = (holder.pod_uid, holder.container)
        if ENV_ALLOCATION in evidence.envs.get(key, {}):
            continue  # by us
        uuids = evidence.envs.get(key, {}).get(ENV_VISIBLE, "").split(",")
        gpus = (topology.by_uuid(GpuUUID(uuid)) for uuid in uuids)
        yield key, Inherited(*key, tuple(gpu.minor for gpu in gpus if gpu), len(holder.ids), 0)


def _alive(topology: Topology, evidence: Evidence) -> Iterator[Inherited]:
    """By what the original had written on the containers that run."""
    for live in evidence.live or ():
        cores = natural_number(live.annotations.get(VCORE, ""))
        memory = natural_number(live.annotations.get(VMEMORY, "0"))
        if allocation_of(live) is not None or cores is None or memory is None:
            continue
        devices = live.annotations.get(ANNOTATION_DEVICE, "").split(",")
        minors = tuple(gpu.minor for gpu in topology.gpus if f"{DEVICE}{gpu.minor}" in devices)
        one = live.container
        yield Inherited(one.pod_uid, one.name, minors, cores, memory)


def _allocation(
    topology: Topology, one: Inherited, evidence: Evidence, now: float
) -> Allocation | None:
    key = (one.pod_uid, one.container)
    if has_ended(one.pod_uid, evidence.view):
        return None
    ids = _ids(one, key, evidence.checkpoint)
    if ids is None:
        return None
    cores, memory = ids
    return Allocation(
        allocation=AllocationID(f"inherited-{one.pod_uid}-{one.container}"),
        admission=f"inherited-{one.pod_uid}",
        core_ids=cores,
        memory_ids=memory,
        gpus=_gpus(topology, one),
        evaluator=evaluator_of(Request(one.cores, one.memory // MEMORY_BLOCK)),
        why=WHY,
        time=now,
        state=State.SETTLED,
        pod=_claimant(key, evidence),
        inherited=True,
    )


def _ids(
    one: Inherited, key: Key, checkpoint: Checkpoint | None
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Of cores and memory; made up where the kubelet has no books, None where those lack it."""
    if checkpoint is None:
        name, blocks = f"{one.pod_uid}/{one.container}", one.memory // MEMORY_BLOCK
        cores = tuple(f"{name}-c-{n}" for n in range(one.cores))
        return cores, tuple(f"{name}-m-{n}" for n in range(blocks))
    held = {h.resource: h.ids for h in checkpoint if (h.pod_uid, h.container) == key}
    if VCORE not in held:
        return None
    return tuple(sorted(held[VCORE])), tuple(sorted(held.get(VMEMORY, ())))


def _gpus(topology: Topology, one: Inherited) -> tuple[GpuUUID, ...]:
    by_minor = {gpu.minor: gpu.uuid for gpu in topology.gpus}
    return tuple(by_minor[minor] for minor in one.minors if minor in by_minor)


def _claimant(key: Key, evidence: Evidence) -> Claimant:
    pod = next((pod for pod in evidence.view or () if pod.uid == key[0]), None)
    return Claimant(key[0], pod.namespace if pod else "", pod.name if pod else "", key[1])

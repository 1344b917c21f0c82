"""What gpu-manager, the original, had granted on this node when we took its place. Pure.

Its checkpoint names each container's GPUs by minor, its cores and its bytes; the kubelet's books
have the device IDs, which say nothing (`tencent.com/vcuda-core-17`). Its pods keep both: the IDs
are advertised as long as a pod holds them, because a kubelet that no longer finds them ends the pod
when it starts again, and the same amount of our own IDs is left out meanwhile.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpumanager.deviceplugin.identity.device_checkpoint import given
from gpumanager.deviceplugin.identity.evidence import Evidence, Key, allocation_of
from gpumanager.deviceplugin.identity.verdict import has_ended
from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID, Topology
from gpumanager.grants.device_ids import ORIGINAL
from gpumanager.grants.grant import Claimant, Grant, LegacySource, State, shares_of
from gpumanager.ids import AllocationID, PodUID
from gpumanager.isolation.edits import ENV_ALLOCATION, ENV_VISIBLE
from gpumanager.names import ANNOTATION_DEVICE, VCORE, VMEMORY
from gpumanager.placement.values import Evaluator, Request
from gpumanager.units import MEMORY_BLOCK, natural_number

log = logging.getLogger(__name__)

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
    """What one container was granted. minors: of its GPUs. memory: bytes."""

    pod_uid: PodUID
    container: str
    minors: tuple[int, ...]
    cores: int
    memory: int


def read_original(path: Path) -> tuple[Inherited, ...]:
    """Read the checkpoint; empty where there is no such file. Raises OriginalUnreadable."""
    try:
        return parse_original(path.read_bytes(), path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise OriginalUnreadable(path, error.strerror or str(error)) from error


def parse_original(text: bytes, path: Path | str = FILE_NAME) -> tuple[Inherited, ...]:
    """Parse the checkpoint. Raises OriginalUnreadable."""
    try:
        pods = json.loads(text)["PodGPUMapping"] or {}
        return tuple(
            Inherited(
                PodUID(uid),
                container,
                tuple(int(device.removeprefix(DEVICE)) for device in one["Devices"] or ()),
                int(one["Cores"]),
                int(one["Memory"]),
            )
            for uid, containers in pods.items()
            for container, one in (containers or {}).items()
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise OriginalUnreadable(path, f"unknown shape ({error})") from error


def inherit(
    topology: Topology, original: tuple[Inherited, ...], evidence: Evidence, now: float
) -> tuple[Grant, ...]:
    """Return the grants of pods that have not ended. `original` counts before other evidence.

    Where the kubelet has its books and gives a container nothing, its pod is gone.
    """
    known: dict[Key, Inherited] = {}
    for live in evidence.live or ():
        # What the original has written on the containers that run.
        cores = natural_number(live.annotations.get(VCORE, ""))
        memory = natural_number(live.annotations.get(VMEMORY, "0"))
        if allocation_of(live) is not None or cores is None or memory is None:
            continue
        devices = live.annotations.get(ANNOTATION_DEVICE, "").split(",")
        minors = tuple(gpu.minor for gpu in topology.gpus if f"{DEVICE}{gpu.minor}" in devices)
        key = (live.container.pod_uid, live.container.name)
        known[key] = Inherited(*key, minors, cores, memory)
    answers = given(evidence.checkpoint or ())
    for holder in evidence.checkpoint or ():
        # What the original has answered, which the kubelet keeps.
        key = (holder.pod_uid, holder.container)
        envs = answers.get(key, {})
        is_original = all(i.startswith(ORIGINAL) for i in holder.ids) and ENV_ALLOCATION not in envs
        if holder.resource == VCORE and is_original:
            gpus = (topology.by_uuid(GpuUUID(u)) for u in envs.get(ENV_VISIBLE, "").split(","))
            minors = tuple(gpu.minor for gpu in gpus if gpu)
            known[key] = Inherited(*key, minors, len(holder.ids), 0)
    known |= {(one.pod_uid, one.container): one for one in original}
    found = (_allocation(topology, one, evidence, now) for one in known.values())
    return tuple(a for a in found if a is not None)


def _allocation(topology: Topology, one: Inherited, evidence: Evidence, now: float) -> Grant | None:
    key = (one.pod_uid, one.container)
    if has_ended(one.pod_uid, evidence.view):
        return None
    cores, blocks = one.cores, one.memory // MEMORY_BLOCK
    admission = f"inherited-{one.pod_uid}"
    evaluator = Request(cores, blocks).evaluator
    legacy = LegacySource(admission)
    if evidence.checkpoint is not None:
        held = {h.resource: h.ids for h in evidence.checkpoint if (h.pod_uid, h.container) == key}
        if VCORE not in held:
            return None  # the kubelet has its books, and gives this container nothing
        legacy = LegacySource(
            admission, tuple(sorted(held[VCORE])), tuple(sorted(held.get(VMEMORY, ())))
        )
        cores, blocks = len(legacy.core_ids), len(legacy.memory_ids)
    by_minor = {gpu.minor: gpu.uuid for gpu in topology.gpus}
    gpus = tuple(by_minor[minor] for minor in one.minors if minor in by_minor)
    pod = next((pod for pod in evidence.view or () if pod.uid == one.pod_uid), None)
    namespace, name = (pod.namespace, pod.name) if pod else ("", "")
    return Grant(
        id=AllocationID(f"inherited-{one.pod_uid}-{one.container}"),
        source=legacy,
        shares=shares_of(gpus, cores, blocks, exclusive=evaluator is not Evaluator.SHARE),
        evaluator=evaluator,
        why=WHY,
        time=now,
        state=State.CONFIRMED,
        pod=Claimant(one.pod_uid, namespace, name, one.container),
    )


def inherited_grants(
    path: Path, topology: Topology, evidence: Evidence, now: float
) -> tuple[Grant, ...]:
    """Return the grants of gpu-manager's pods that live. Log a checkpoint that cannot be read."""
    try:
        original = read_original(path)
    except OriginalUnreadable as error:
        log.error("%s", error)  # noqa: TRY400 - it says all there is to say
        original = ()
    return inherit(topology, original, evidence, now)

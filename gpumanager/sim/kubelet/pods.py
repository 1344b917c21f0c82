"""The kubelet's list of pods, and the check that the node has room for one more. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.kubelet.devices import DeviceBooks
from gpumanager.sim.manifest.pods import RESOURCES, ContainerManifest, Pod


class Phase(Enum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class SimulatedPodStatus:
    pod: Pod
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    """The node will not run the pod. reason, message: what its status shows.

    cause: the part of the message that is the plugin's or the node's own.
    """

    reason: str
    message: str
    cause: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.cause}"


@dataclass(frozen=True, slots=True)
class SimulatedPodList:
    """All pods the kubelet knows, by UID, in the order in which it met them."""

    statuses: Mapping[str, SimulatedPodStatus] = field(default_factory=dict)

    def add(self, pod: Pod) -> "SimulatedPodList":
        return SimulatedPodList({**self.statuses, pod.uid: SimulatedPodStatus(pod)})

    def with_phase(
        self, uid: str, phase: Phase, reason: str = "", message: str = ""
    ) -> "SimulatedPodList":
        changed = replace(self.statuses[uid], phase=phase, reason=reason, message=message)
        return SimulatedPodList({**self.statuses, uid: changed})

    def without(self, uid: str) -> "SimulatedPodList":
        return SimulatedPodList({key: value for key, value in self.statuses.items() if key != uid})

    @property
    def active(self) -> tuple[Pod, ...]:
        return tuple(row.pod for row in self.statuses.values() if not row.phase.terminal)

    @property
    def active_uids(self) -> frozenset[str]:
        return frozenset(pod.uid for pod in self.active)


def requested(containers: Iterable[ContainerManifest], resource: str) -> int:
    """Return a pod's need at its busiest: init containers run alone, but beside sidecars."""
    sidecars = apps = peak = 0
    for container in containers:
        amount = container.asks.get(resource, 0)
        if container.kind is ContainerKind.INIT:
            peak = max(peak, sidecars + amount)
        elif container.kind is ContainerKind.SIDECAR:
            sidecars += amount
        else:
            apps += amount
    return max(peak, sidecars + apps)


def room_for(pod: Pod, others: Iterable[Pod], books: DeviceBooks) -> Rejection | None:
    """Return the node's own check, which comes when the plugins have answered."""
    others = tuple(others)
    for resource in RESOURCES:
        wanted = requested(pod.containers, resource)
        used = sum(requested(other.containers, resource) for other in others)
        capacity = books.capacity_for(pod.uid, resource)
        if wanted and wanted > capacity - used:
            cause = (
                f"Node didn't have enough resource: {resource}, "
                f"requested: {wanted}, used: {used}, capacity: {capacity}"
            )
            return Rejection(f"OutOf{resource}", cause, cause)
    return None


def pod_json(status: SimulatedPodStatus) -> dict[str, Any]:
    """Return as much of a v1 Pod as decides about GPUs."""
    pod, containers = status.pod, {True: list[Any](), False: list[Any]()}
    for one in pod.containers:
        amounts = {name: str(amount) for name, amount in one.asks.items()}
        item = {
            "name": one.name,
            "env": [{"name": name, "value": value} for name, value in one.environment],
            "resources": {"limits": amounts, "requests": amounts},
        }
        if one.kind is ContainerKind.SIDECAR:
            item["restartPolicy"] = "Always"
        containers[one.kind is ContainerKind.APP].append(item)
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "annotations": dict(pod.annotations),
        },
        "spec": {"initContainers": containers[False], "containers": containers[True]},
        "status": {
            "phase": status.phase.value,
            "reason": status.reason,
            "message": status.message,
        },
    }

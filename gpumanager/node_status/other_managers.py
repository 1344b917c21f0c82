"""Other managers of this node's GPUs, found by what they leave in the API server. Pure.

The kubelet and the scheduler count names, not cards: two device plugins, or a device plugin and a
DRA driver, that offer the same GPU assign it twice. So the agent offers nothing while another
manager is there. Signs of one:

* an extended resource of the node, `nvidia.com/gpu: 8`. The kubelet keeps its name at 0 after its
  plugin is gone, and its capacity for five minutes after the plugin stops. An extended resource
  that is backed by claims (DRAExtendedResource, as our `tencent.com/gpu`) is in no node's status;
* a pod that still has such a resource, though its plugin is gone;
* a ResourceSlice of another driver that names one of our GPUs by its UUID;
* the label by which NVIDIA's plugin starts its MPS control daemon, which sets all GPUs to
  exclusive-process mode;
* HAMi's handshake, while it is renewed: its resources can be renamed.

A manager that was there counts as gone only after some time without signs. Example: the kubelet
restarts, and `nvidia.com/gpu` is 0 until NVIDIA's plugin has registered again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from gpumanager.gpu.health.reports import NodeCondition, NodeEvent
from gpumanager.gpu.values import GpuUUID
from gpumanager.kube.errors import Object
from gpumanager.kube.quantity import whole_number
from gpumanager.names import CLAIM_DRIVER

CONDITION: Final = "OtherGpuManager"
"""Type of the node condition. An agent that starts reads in it what the one before had found."""
RESOURCES: Final = {
    "nvidia.com/gpu": "NVIDIA's device plugin or HAMi's",
    "nvidia.com/gpu.shared": "NVIDIA's device plugin",
    "nvidia.com/mig-*": "NVIDIA's device plugin",
    "volcano.sh/vgpu-number": "Volcano's device plugin",
    "volcano.sh/gpu-*": "Volcano's device plugin",
    "aliyun.com/gpu-*": "gpushare's device plugin",
    "*/vgpu-number": "vgpu-manager",
}
"""Extended resources of GPUs, as patterns, and what registers them; the first that fits counts."""
MPS_LABEL: Final = "nvidia.com/mps.capable"
HAMI_HANDSHAKE: Final = "hami.io/node-handshake"
"""Annotation that HAMi's plugin and scheduler write in turn, every 30 s."""
HAMI_DELETED: Final = "Deleted"
HANDSHAKE_SECONDS: Final = 300.0
"""A handshake that was not renewed for so long is left over."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whether this agent offers its GPUs. others: what manages them too, when any was last found;
    empty where none is.

    gone_since: from when on none was found, by a monotonic clock; None while one is.
    """

    others: str = ""
    gone_since: float | None = None


def manager_of(resource: str) -> str | None:
    """Return what registers an extended resource; None for one that is not another manager's."""
    found = (name for pattern, name in RESOURCES.items() if fnmatchcase(resource, pattern))
    return next(found, None)


def foreign_capacity(node: Object) -> dict[str, int]:
    """Return the extended resources of other managers that a node has, the larger of capacity and
    allocatable."""
    status, found = node.get("status") or {}, dict[str, int]()
    for amounts in (status.get("capacity") or {}, status.get("allocatable") or {}):
        for name, text in amounts.items():
            if manager_of(name):
                found[name] = max(found.get(name, 0), whole_number(text) or 0)
    return found


def handshake(node: Object) -> str:
    """Return HAMi's; empty where there is none."""
    return str((node["metadata"].get("annotations") or {}).get(HAMI_HANDSHAKE, ""))


def remembered(node: Object) -> Ownership:
    """Return where an agent begins: at what the one before it found here, or at nothing."""
    for one in (node.get("status") or {}).get("conditions") or ():
        if (one.get("type"), one.get("status")) == (CONDITION, "True"):
            return Ownership(one["message"])
    return Ownership()


def foreign_resources(pod: Object) -> tuple[str, ...]:
    """Return the extended resources of other managers that a pod has, of the pod's JSON object.

    Only of a pod that the kubelet has admitted: it then reports containers. Anybody can write a pod
    that asks for them on this node, which the kubelet refuses. Not those that the scheduler turned
    into a claim: that is in a slice, ours or another's.
    """
    status, spec = pod.get("status") or {}, pod.get("spec") or {}
    admitted = status.get("containerStatuses") or status.get("initContainerStatuses")
    ended = status.get("phase") in {"Succeeded", "Failed"}
    if ended or not admitted or status.get("extendedResourceClaimStatus"):
        return ()
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    limits = ((one.get("resources") or {}).get("limits") or {} for one in containers)
    amounts = ((name, amount) for each in limits for name, amount in each.items())
    return tuple(sorted({name for name, n in amounts if manager_of(name) and whole_number(n)}))


def other_managers(
    node: Object,
    slices: Iterable[Object],
    pods: Mapping[str, tuple[str, ...]],
    gpus: Collection[GpuUUID],
    *,
    renewed: bool = True,
) -> tuple[str, ...]:
    """Return all that are found, each as `name (sign)`.

    slices: ResourceSlices of the node. pods: namespace/name, and their resources of other managers.
    gpus: this node's. renewed: whether HAMi's handshake is.
    """
    resources, found = foreign_capacity(node), list[tuple[str, str]]()
    for resource, amount in sorted(resources.items()):
        if amount and (manager := manager_of(resource)):
            found.append((manager, f"the node has {resource}: {amount}"))
    for one in slices:
        values = (
            value.get("string")
            for device in one["spec"].get("devices") or ()
            for value in (device.get("attributes") or {}).values()
        )
        driver = one["spec"]["driver"]
        if driver != CLAIM_DRIVER and (same := set(gpus).intersection(values)):
            sign = f"ResourceSlice {one['metadata']['name']} has {min(same)}"
            found.append((f"driver {driver}", sign))
    if (node["metadata"].get("labels") or {}).get(MPS_LABEL) == "true":
        found.append(("NVIDIA's MPS control daemon", f"the node has {MPS_LABEL}=true"))
    shaken = handshake(node)
    if renewed and shaken and not shaken.startswith(HAMI_DELETED):
        found.append(("HAMi", f"{HAMI_HANDSHAKE} is {shaken[:40]}"))
    for pod, held in sorted(pods.items()):
        # Its plugin is gone or restarts, and the pod goes on with its GPU. Where the node never had
        # the resource, the kubelet ignores the request: the pod has no GPU.
        found += (
            (manager, f"pod {pod} has {resource}")
            for resource in held
            if resources.get(resource) == 0 and (manager := manager_of(resource))
        )
    return tuple(f"{name} ({sign})" for name, sign in found)


def decide(before: Ownership, found: str, now: float, gone_after: float) -> Ownership:
    """Return who has the GPUs from now on.

    now: monotonic seconds. gone_after: seconds without a sign until a manager counts as gone.
    """
    if found or not before.others:
        return Ownership(found)
    since = now if before.gone_since is None else before.gone_since
    return Ownership() if now - since >= gone_after else Ownership(before.others, since)


def reason_of(ownership: Ownership, now: float, gone_after: float) -> str:
    """Return why no GPU is offered; empty where they are."""
    if not ownership.others:
        return ""
    if ownership.gone_since is None:
        return f"another manager has this node's GPUs: {ownership.others}"
    left = max(0.0, gone_after - (now - ownership.gone_since))
    return (
        f"another manager had this node's GPUs: {ownership.others}; no sign of it now, "
        f"{left:.0f} s to wait"
    )


def condition_of_ownership(ownership: Ownership) -> NodeCondition:
    """Return the node's condition: True while no GPU is offered because of another manager."""
    if not ownership.others:
        return NodeCondition(CONDITION, False, "NoneFound", "this node's GPUs have one manager")
    return NodeCondition(CONDITION, True, "OtherManagerFound", ownership.others)


def event_between(before: Ownership, after: Ownership) -> NodeEvent | None:
    """Return the event for a manager that came, or has gone."""
    if bool(before.others) == bool(after.others):
        return None
    if not after.others:
        return NodeEvent(False, "OtherGpuManagerGone", "GPUs are offered again")
    message = f"no GPU is offered, because another manager has them: {after.others}"
    return NodeEvent(True, "OtherGpuManager", message)

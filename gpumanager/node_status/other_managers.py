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
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from gpumanager.gpu.health.reports import NodeCondition, NodeEvent
from gpumanager.gpu.values import GpuUUID
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
class OtherManager:
    """name: as far as its sign tells. sign: what was found."""

    name: str
    sign: str

    def __str__(self) -> str:
        return f"{self.name} ({self.sign})" if self.sign else self.name


@dataclass(frozen=True, slots=True)
class NodeSigns:
    """Of a node object. resources: extended resources of GPUs that are not ours, the larger of
    capacity and allocatable. handshake: HAMi's; empty where there is none. found_before: message of
    our own condition, where it is True."""

    resources: Mapping[str, int] = field(default_factory=dict)
    mps: bool = False
    handshake: str = ""
    found_before: str = ""


@dataclass(frozen=True, slots=True)
class Handshake:
    """HAMi's, and since when it has been this one. Its own time is not read: it has several forms,
    and comes from two clocks."""

    text: str = ""
    since: float = 0.0

    def read(self, text: str, now: float) -> "Handshake":
        return self if text == self.text else Handshake(text, now)

    def fresh(self, now: float) -> str:
        """Empty for one that is left over."""
        return self.text if now - self.since < HANDSHAKE_SECONDS else ""


@dataclass(frozen=True, slots=True)
class ForeignSlice:
    """A ResourceSlice of another driver. texts: all text attributes of its devices."""

    name: str
    driver: str
    texts: frozenset[str]


@dataclass(frozen=True, slots=True)
class Ownership:
    """Whether this agent offers its GPUs. others: managers found, when any was last found.

    gone_since: from when on none was found, by a monotonic clock; None while one is.
    """

    others: tuple[OtherManager, ...] = ()
    gone_since: float | None = None


def manager_of(resource: str) -> str | None:
    """Return what registers an extended resource; None for one that is not another manager's."""
    found = (name for pattern, name in RESOURCES.items() if fnmatchcase(resource, pattern))
    return next(found, None)


def read_signs(node: Any) -> NodeSigns:
    """Return the signs in the JSON object of a node."""
    metadata, status = node["metadata"], node.get("status") or {}
    resources: dict[str, int] = {}
    for amounts in (status.get("capacity") or {}, status.get("allocatable") or {}):
        for name, text in amounts.items():
            if manager_of(name):
                resources[name] = max(resources.get(name, 0), whole_number(text) or 0)
    own = [one for one in status.get("conditions") or () if one.get("type") == CONDITION]
    return NodeSigns(
        resources,
        mps=(metadata.get("labels") or {}).get(MPS_LABEL) == "true",
        handshake=(metadata.get("annotations") or {}).get(HAMI_HANDSHAKE, ""),
        found_before=next((one["message"] for one in own if one.get("status") == "True"), ""),
    )


def read_slice(item: Any) -> ForeignSlice | None:
    """Return another driver's ResourceSlice, of its JSON object; None for one of ours."""
    spec = item["spec"]
    if spec["driver"] == CLAIM_DRIVER:
        return None
    attributes = (
        value
        for one in spec.get("devices") or ()
        for value in (one.get("attributes") or {}).values()
    )
    texts = frozenset(value["string"] for value in attributes if "string" in value)
    return ForeignSlice(item["metadata"]["name"], spec["driver"], texts)


def foreign_resources(pod: Any) -> tuple[str, ...]:
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
    node: NodeSigns,
    slices: Iterable[ForeignSlice],
    pods: Mapping[str, tuple[str, ...]],
    gpus: Collection[GpuUUID],
) -> tuple[OtherManager, ...]:
    """Return all that are found. pods: namespace/name, and their resources of other managers.

    gpus: this node's. A handshake that is not renewed is to be left out of `node` before.
    """
    found: list[OtherManager] = []
    for resource, amount in sorted(node.resources.items()):
        if amount and (name := manager_of(resource)):
            found.append(OtherManager(name, f"the node has {resource}: {amount}"))
    for one in slices:
        if same := one.texts.intersection(gpus):
            sign = f"ResourceSlice {one.name} has {min(same)}"
            found.append(OtherManager(f"driver {one.driver}", sign))
    if node.mps:
        found.append(OtherManager("NVIDIA's MPS control daemon", f"the node has {MPS_LABEL}=true"))
    if node.handshake and not node.handshake.startswith(HAMI_DELETED):
        found.append(OtherManager("HAMi", f"{HAMI_HANDSHAKE} is {node.handshake[:40]}"))
    for pod, resources in sorted(pods.items()):
        # Its plugin is gone or restarts, and the pod goes on with its GPU. Where the node never had
        # the resource, the kubelet ignores the request: the pod has no GPU.
        found += (
            OtherManager(name, f"pod {pod} has {resource}")
            for resource in resources
            if node.resources.get(resource) == 0 and (name := manager_of(resource))
        )
    return tuple(found)


def decide(
    before: Ownership, found: tuple[OtherManager, ...], now: float, gone_after: float
) -> Ownership:
    """Return who has the GPUs from now on.

    now: monotonic seconds. gone_after: seconds without a sign until a manager counts as gone.
    """
    if found:
        return Ownership(found)
    if not before.others:
        return before
    since = now if before.gone_since is None else before.gone_since
    return Ownership() if now - since >= gone_after else Ownership(before.others, since)


def remembered(node: NodeSigns) -> Ownership:
    """Return where an agent begins: at what the one before it found here, or at nothing."""
    return Ownership((OtherManager(node.found_before, ""),) if node.found_before else ())


def reason_of(ownership: Ownership, now: float, gone_after: float) -> str:
    """Return why no GPU is offered; empty where they are."""
    if not ownership.others:
        return ""
    others = "; ".join(map(str, ownership.others))
    if ownership.gone_since is None:
        return f"another manager has this node's GPUs: {others}"
    left = max(0.0, gone_after - (now - ownership.gone_since))
    return (
        f"another manager had this node's GPUs: {others}; no sign of it now, {left:.0f} s to wait"
    )


def condition_of_ownership(ownership: Ownership) -> NodeCondition:
    """Return the node's condition: True while no GPU is offered because of another manager."""
    if not ownership.others:
        return NodeCondition(CONDITION, False, "NoneFound", "this node's GPUs have one manager")
    message = "; ".join(map(str, ownership.others))
    return NodeCondition(CONDITION, True, "OtherManagerFound", message)


def event_between(before: Ownership, after: Ownership) -> NodeEvent | None:
    """Return the event for a manager that came, or has gone."""
    if after.others and not before.others:
        others = "; ".join(map(str, after.others))
        message = f"no GPU is offered, because another manager has them: {others}"
        return NodeEvent(True, "OtherGpuManager", message)
    if before.others and not after.others:
        return NodeEvent(False, "OtherGpuManagerGone", "GPUs are offered again")
    return None

"""A pod, as much of it as this project needs, read from its JSON object. Pure.

One model for all that meet pods: from the kubelet's own list, from the API server's watch, in what
kube-scheduler asks. What cannot be understood is left out, never guessed.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from gpumanager.ids import PodUID
from gpumanager.kube.quantity import amount, whole_number
from gpumanager.names import ANNOTATIONS_OURS, VCORE, VMEMORY
from gpumanager.units import MIB

ANNOTATION_MOST: Final = 16 << 10
"""Characters of one annotation; what is longer is nothing that a scheduler wrote."""
ANNOTATIONS_MOST: Final = 64 << 10
LARGEST_AMOUNT: Final = 10**9
"""Thousandths of a CPU, or MiB: more is a mistake, and is counted as this."""
CONFIG_HASH: Final = "kubernetes.io/config.hash"
CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"
CAPABILITIES: Final = "NVIDIA_DRIVER_CAPABILITIES"
WITH_GRAPHICS: Final = frozenset({"all", "graphics", "display"})
LISTS: Final = ("initContainers", "containers")
STATUSES: Final = ("initContainerStatuses", "containerStatuses")


class ContainerKind(Enum):
    """In which of the pod's lists a container stands; a sidecar is an init container that stays."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What one container asks for. cores, blocks: 0 for nothing, None where not understood.

    graphics: whether it may get OpenGL, EGL and Vulkan; see `wants_graphics`.
    """

    name: str
    kind: ContainerKind
    cores: int | None
    blocks: int | None
    graphics: bool = True


@dataclass(frozen=True, slots=True)
class PodStatus:
    """Of a pod as an object of the API server: what a node decides by about its own pods.

    version: its resourceVersion. owners: kinds of its owners. static: made by the kubelet from a
    file; the API server shows a mirror of it. reason, message: of its status. waiting: why its
    containers wait, each as reason and message.
    """

    version: str = ""
    owners: tuple[str, ...] = ()
    static: bool = False
    reason: str = ""
    message: str = ""
    waiting: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod. annotations: those in `tencent.com/`. containers: in the order of admission, init
    first. cpu_milli, memory_mib: what it asks of the node itself. priority: as kube-scheduler has
    it. wants_others: it has to be where certain others are. scheduler: its schedulerName. claims:
    names of its ResourceClaims, of those that were made. mirror_of: the kubelet's UID of a static
    pod, where `uid` is its mirror's.
    """

    uid: PodUID
    namespace: str
    name: str
    phase: str
    terminating: bool
    annotations: Mapping[str, str]
    containers: tuple[ContainerView, ...]
    cpu_milli: int = 0
    memory_mib: int = 0
    priority: int = 0
    wants_others: bool = False
    scheduler: str = ""
    claims: tuple[str, ...] = ()
    mirror_of: PodUID | None = None
    status: PodStatus = field(default=PodStatus(), compare=False)

    @property
    def ended(self) -> bool:
        """Return whether it will never run again: its devices are free."""
        return self.phase in {"Succeeded", "Failed"}

    @property
    def kubelet_uid(self) -> PodUID:
        """Return the UID that the kubelet, and so the device plugin, has for it."""
        return self.mirror_of or self.uid

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def apps(self) -> tuple[str, ...]:
        """Return the names of its containers, without init containers."""
        return tuple(one.name for one in self.containers if one.kind is ContainerKind.APP)

    @property
    def asks(self) -> bool:
        """Return whether it requests any of our resources, understood or not."""
        return any(one.cores != 0 or one.blocks != 0 for one in self.containers)


def read_pod(item: Any) -> PodView:
    """Read a pod from its JSON object.

    Raises KeyError, TypeError, AttributeError, ValueError where the object is no pod.
    """
    metadata, status = item["metadata"], item.get("status") or {}
    spec, annotations = item.get("spec") or {}, metadata.get("annotations") or {}
    priority = spec.get("priority")
    cpu, memory = node_resources(spec)
    mirror = CONFIG_MIRROR in annotations and annotations.get(CONFIG_HASH)
    return PodView(
        uid=PodUID(metadata["uid"]),
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        phase=sys.intern(str(status.get("phase") or "Pending")),
        terminating=bool(metadata.get("deletionTimestamp")),
        annotations=_ours(annotations),
        containers=tuple(_containers(spec)),
        cpu_milli=cpu,
        memory_mib=memory,
        priority=priority if isinstance(priority, int) else 0,
        wants_others=bool((spec.get("affinity") or {}).get("podAffinity")),
        scheduler=sys.intern(str(spec.get("schedulerName") or "")),
        claims=tuple(claim_names(spec, status).values()),
        mirror_of=PodUID(mirror) if mirror else None,
        status=PodStatus(
            version=str(metadata.get("resourceVersion", "")),
            owners=tuple(sys.intern(one["kind"]) for one in metadata.get("ownerReferences") or ()),
            static=CONFIG_MIRROR in annotations,
            reason=status.get("reason", ""),
            message=status.get("message", ""),
            waiting=tuple(
                (waiting.get("reason", ""), waiting.get("message", ""))
                for kind in STATUSES
                for container in status.get(kind) or ()
                if (waiting := (container.get("state") or {}).get("waiting"))
            ),
        ),
    )


def node_resources(spec: Any) -> tuple[int, int]:
    """Return the CPU (thousandths) and memory (MiB) a pod asks of its node, as Kubernetes counts.

    That of its containers, a limit where no request stands, and the overhead of the runtime. What
    stands at the pod as a whole counts instead. What cannot be read counts as nothing:
    kube-scheduler decides whether it fits, here it is weighed.
    """
    kinds, rows = list[ContainerKind](), list[tuple[int, int]]()
    for name in LISTS:
        for container in spec.get(name) or ():
            kinds.append(kind_of(container, init=name != "containers"))
            resources = container.get("resources") or {}
            rows.append(
                amounts((resources.get("limits") or {}) | (resources.get("requests") or {}))
            )
    cpu, memory = (pod_amount(zip(kinds, (row[n] for row in rows), strict=True)) for n in (0, 1))
    if whole := (spec.get("resources") or {}).get("requests"):
        whole_cpu, whole_memory = amounts(whole)
        cpu = whole_cpu if "cpu" in whole else cpu
        memory = whole_memory if "memory" in whole else memory
    more_cpu, more_memory = amounts(spec.get("overhead") or {})
    return cpu + more_cpu, memory + more_memory


def pod_amount(containers: Iterable[tuple[ContainerKind, int]]) -> int:
    """Return what a pod requests of a resource as Kubernetes counts it, by order of admission.

    Containers and sidecars together, or an init container beside the sidecars that stand before
    it, if that is more.
    """
    running = most = 0
    for kind, one in containers:
        if kind is ContainerKind.INIT:
            most = max(most, running + one)
        else:
            running += one
    return max(most, running)


def amounts(said: Any) -> tuple[int, int]:
    """Return the CPU (thousandths) and memory (MiB) of a map of resources."""
    return _scaled(said.get("cpu"), 1000), _scaled(said.get("memory"), 1 / MIB)


def kind_of(container: Any, *, init: bool) -> ContainerKind:
    """init: it stands among the pod's init containers."""
    if not init:
        return ContainerKind.APP
    always = container.get("restartPolicy") == "Always"
    return ContainerKind.SIDECAR if always else ContainerKind.INIT


def _scaled(value: Any, scale: float) -> int:
    return min(LARGEST_AMOUNT, round(amount(str(value)) * scale)) if value is not None else 0


def _ours(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations in `tencent.com/`, without those that are too large.

    Others may be large, such as the spec that kubectl remembers, and a node has many pods. Any user
    may write large ones in our name, too.
    """
    found, left = dict[str, str](), ANNOTATIONS_MOST
    for key, text in annotations.items():
        size = len(key) + len(text)
        if key.startswith(ANNOTATIONS_OURS) and len(text) <= ANNOTATION_MOST and size <= left:
            found[key], left = text, left - size
    return found


def _containers(spec: Any) -> Iterator[ContainerView]:
    for name in LISTS:
        for container in spec.get(name) or []:
            limits = (container.get("resources") or {}).get("limits") or {}
            yield ContainerView(
                container["name"],
                kind_of(container, init=name == "initContainers"),
                _devices(limits.get(VCORE, 0)),
                _devices(limits.get(VMEMORY, 0)),
                graphics=wants_graphics(container),
            )


def wants_graphics(container: Any) -> bool:
    """Return whether NVIDIA_DRIVER_CAPABILITIES of a container has graphics, as NVIDIA's container
    toolkit reads it. True where the pod does not set it, since the image may: nothing set, a value
    from elsewhere, or one that is made of others."""
    said = [one for one in container.get("env") or () if one.get("name") == CAPABILITIES]
    words = str(said[-1].get("value") or "") if said else ""
    if not said or "valueFrom" in said[-1] or "$(" in words:
        return True
    return not WITH_GRAPHICS.isdisjoint(word.strip() for word in words.split(","))


def claim_names(spec: Any, status: Any) -> dict[str, str]:
    """Return the pod's ResourceClaims, by the pod's own names for them, of those that were made:
    one of a template is named in the pod's status then."""
    made = {
        one["name"]: one.get("resourceClaimName")
        for one in status.get("resourceClaimStatuses") or ()
    }
    found = {
        one["name"]: one.get("resourceClaimName") or made.get(one["name"])
        for one in spec.get("resourceClaims") or ()
    }
    return {name: str(claim) for name, claim in found.items() if claim}


def _devices(value: Any) -> int | None:
    """Read a whole number of devices; Kubernetes writes `30` and, for thousands, `1k`."""
    found = whole_number(value)
    return None if found is None or found < 0 else found

"""The kubelet's device manager as values: healthy devices, holders, and how IDs are picked.

Pure. Follows pkg/kubelet/cm/devicemanager/manager.go of Kubernetes without topology hints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from gpumanager.kube.pod import ContainerKind
from gpumanager.sim.manifest.pods import ContainerManifest

IDs = frozenset[str]
NONE: IDs = frozenset()
Nodes = Mapping[str, tuple[int, ...]]
"""NUMA nodes by device ID; those that name none are left out."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one container holds of one resource. response: the plugin's answer, serialised."""

    pod_uid: str
    container: str
    resource: str
    ids: IDs
    response: bytes = b""


@dataclass(frozen=True, slots=True)
class DeviceBooks:
    """registered: all devices by resource. healthy: those that can be given out.

    holdings: by container. pending: being given out in the running admission. nodes: by resource.
    """

    registered: Mapping[str, IDs] = field(default_factory=dict)
    healthy: Mapping[str, IDs] = field(default_factory=dict)
    holdings: tuple[Holding, ...] = ()
    pending: Mapping[str, IDs] = field(default_factory=dict)
    nodes: Mapping[str, Nodes] = field(default_factory=dict)

    def advertise(
        self, resource: str, registered: IDs, healthy: IDs, nodes: Nodes | None = None
    ) -> "DeviceBooks":
        return replace(
            self,
            nodes=self.nodes if nodes is None else {**self.nodes, resource: nodes},
            registered={**self.registered, resource: registered},
            healthy={**self.healthy, resource: healthy},
        )

    def capacity(self, resource: str) -> int:
        """Count the healthy devices."""
        return len(self.healthy.get(resource, NONE))

    def capacity_for(self, pod_uid: str, resource: str) -> int:
        """Count what is allocatable for one pod: devices in use are part of it."""
        if not any(row.pod_uid == pod_uid for row in self.holdings):
            return self.capacity(resource)
        return max(self.capacity(resource), len(self.held(resource)))

    def nodes_of(self, resource: str, device_id: str) -> tuple[int, ...]:
        """Return the NUMA nodes of one device; empty where it names none."""
        return self.nodes.get(resource, {}).get(device_id, ())

    def held(self, resource: str) -> IDs:
        rows = (row.ids for row in self.holdings if row.resource == resource)
        return NONE.union(*rows)

    def free(self, resource: str) -> IDs:
        taken = self.held(resource) | self.pending.get(resource, NONE)
        return self.healthy.get(resource, NONE) - taken

    def reserve(self, resource: str, ids: IDs) -> "DeviceBooks":
        both = self.pending.get(resource, NONE) | ids
        return replace(self, pending={**self.pending, resource: both})

    def hold(self, holding: Holding) -> "DeviceBooks":
        return replace(self, holdings=(*self.holdings, holding))

    def finish_admission(self) -> "DeviceBooks":
        """End an admission, well or badly: what is in use is what containers hold."""
        return replace(self, pending={})

    def collect(self, active: frozenset[str]) -> "DeviceBooks":
        """Forget pods that ended; then, as the real one, also what is being given out."""
        kept = tuple(row for row in self.holdings if row.pod_uid in active)
        return self if len(kept) == len(self.holdings) else replace(self, holdings=kept, pending={})

    def of_container(self, pod_uid: str, container: str) -> tuple[Holding, ...]:
        return tuple(
            row for row in self.holdings if (row.pod_uid, row.container) == (pod_uid, container)
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """A pick under way. reused: from init containers. available: what the rest may come from."""

    resource: str
    size: int
    reused: IDs
    available: IDs

    @property
    def complete(self) -> bool:
        return len(self.reused) == self.size


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Not enough free devices, in the kubelet's words."""

    resource: str
    requested: int
    available: int

    def __str__(self) -> str:
        return (
            f"requested number of devices unavailable for {self.resource}. "
            f"Requested: {self.requested}, Available: {self.available}"
        )


def again(books: DeviceBooks, holding: Holding, size: int, *, running: bool) -> str | None:
    """Return why a container cannot keep its devices when its pod is admitted once more.

    running: nobody asks about the health of what a running container has.
    """
    resource = holding.resource
    if len(holding.ids) != size:
        return f"changed request for resource {resource!r} from {len(holding.ids)}"
    if running:
        return None
    if not books.capacity(resource):
        return unhealthy(resource)
    if not holding.ids <= books.healthy[resource]:
        return (
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {resource}"
        )
    return None


def unhealthy(resource: str) -> str:
    """Return the refusal where nothing is healthy, for example before its plugin is back."""
    return f"no healthy devices present; cannot allocate unhealthy devices {resource}"


def begin(
    books: DeviceBooks, resource: str, size: int, reusable: IDs, random: Random
) -> Choice | Unavailable:
    """Pick first what init containers leave, then what is free."""
    reused = _some(reusable, size, random)
    free = books.free(resource)
    missing = size - len(reused)
    if missing > len(free):
        return Unavailable(resource, missing, len(free))
    return Choice(resource, size, reused, free)


def finish(choice: Choice, preferred: Sequence[str], random: Random) -> IDs:
    """Pick the plugin's preference as far as it may be had, the remainder at random."""
    missing = choice.size - len(choice.reused)
    wanted = [name for name in dict.fromkeys(preferred) if name in choice.available]
    taken = choice.reused.union(wanted[:missing])
    return taken | _some(choice.available - taken, choice.size - len(taken), random)


def _some(ids: IDs, count: int, random: Random) -> IDs:
    ordered = sorted(ids)
    return frozenset(random.sample(ordered, min(count, len(ordered))))


Reusable = Mapping[str, IDs]
"""By resource: what the init containers of the pod under admission leave to the next container."""


def leave(
    reusable: Reusable, container: ContainerManifest, holdings: Sequence[Holding]
) -> Reusable:
    """Return what is left to reuse: an init container adds to it, one that stays takes away."""
    left = dict(reusable)
    for holding in holdings:
        before = left.get(holding.resource, NONE)
        adds = container.kind is ContainerKind.INIT
        left[holding.resource] = before | holding.ids if adds else before - holding.ids
    return left

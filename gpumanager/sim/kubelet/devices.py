"""The kubelet's device manager as values: healthy devices, holders, and how IDs are picked.

Pure. Follows pkg/kubelet/cm/devicemanager/manager.go of Kubernetes without topology hints.
"""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

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
        return NONE.union(*(row.ids for row in self.holdings if row.resource == resource))

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

    def checkpoint_text(self, node_of_none: int) -> str:
        """Return the checkpoint file, in the shape of kubelets from 1.20 on.

        node_of_none: the NUMA node by which it has a device that names none. The checksum of the
        real one is a hash over Go's way of printing structs, which only the kubelet itself checks;
        here it is a CRC.
        """
        entries = []
        for row in self.holdings:
            by_node: dict[str, list[str]] = {}
            for device_id in sorted(row.ids):
                for node in self.nodes_of(row.resource, device_id) or (node_of_none,):
                    by_node.setdefault(str(node), []).append(device_id)
            entries.append(
                {
                    "PodUID": row.pod_uid,
                    "ContainerName": row.container,
                    "ResourceName": row.resource,
                    "DeviceIDs": by_node,
                    "AllocResp": base64.b64encode(row.response).decode(),
                }
            )
        registered = {name: sorted(ids) for name, ids in self.healthy.items()}
        content = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}
        checksum = zlib.crc32(json.dumps(content, sort_keys=True).encode())
        return json.dumps({"Data": content, "Checksum": checksum})


def why_not_again(books: DeviceBooks, holding: Holding, size: int, *, health: bool) -> str | None:
    """Return why a container cannot keep its devices when its pod is admitted once more.

    health: whether they have to be healthy.
    """
    resource = holding.resource
    if len(holding.ids) != size:
        return f"changed request for resource {resource!r} from {len(holding.ids)}"
    if health and not books.capacity(resource):
        return none_healthy(resource)
    if health and not holding.ids <= books.healthy[resource]:
        return (
            "previously allocated devices are no longer healthy; "
            f"cannot allocate unhealthy devices {resource}"
        )
    return None


def none_healthy(resource: str) -> str:
    """Return the refusal where nothing is healthy, for example before its plugin is back."""
    return f"no healthy devices present; cannot allocate unhealthy devices {resource}"


def too_few(resource: str, requested: int, available: int) -> str:
    return (
        f"requested number of devices unavailable for {resource}. "
        f"Requested: {requested}, Available: {available}"
    )


def pick(size: int, reused: IDs, free: IDs, preferred: Sequence[str], random: Random) -> IDs:
    """Pick what init containers leave, the plugin's preference as far as it may be had, and the
    remainder at random."""
    wanted = [name for name in dict.fromkeys(preferred) if name in free]
    taken = reused.union(wanted[: size - len(reused)])
    return taken | some(free - taken, size - len(taken), random)


def some(ids: IDs, count: int, random: Random) -> IDs:
    """Pick so many at random, or all."""
    ordered = sorted(ids)
    return frozenset(random.sample(ordered, min(count, len(ordered))))

"""A node as people look at it: its GPUs, and under each the containers that have some of it.

Values only; read from what an agent serves (`view.metrics`), put in order (`view.listing`), drawn
(`view.drawing`). What an agent does not tell is None, and shown as such.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ContainerRow:
    """One container on one GPU.

    container: empty for a pod as a whole. limit, used, peak: bytes by the books, limit 0 where it
    is not told; measured: bytes by the driver. granted (nan: not told), ceiling, share, busy:
    percent of the GPU's time; share by the books since the agent's last look, busy by the driver.
    throttled_seconds: for how long its launches had to wait, refusals: how many requests for memory
    were refused, both since it started. throttled: percent of the last seconds that its
    launches had to wait; None where only one look is known. Of whole GPUs there are no books.
    unlimited: processes for which no limit holds, by what they lack (`view.story`).
    claim: name and requests of the claim that it has the GPU by, if any; users: all containers that
    use that one, by pod and container, and share its limits.
    """

    namespace: str
    pod: str
    container: str
    limit: float
    granted: float
    ceiling: float
    used: float | None = None
    peak: float | None = None
    measured: float | None = None
    share: float | None = None
    busy: float | None = None
    throttled_seconds: float | None = None
    throttled: float | None = None
    launches: float | None = None
    throttled_launches: float | None = None
    refusals: float | None = None
    processes: float = 0
    unlimited: Mapping[str, int] = field(default_factory=dict)
    claim: tuple[str, str] | None = None
    users: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Return all containers that share a claim: `default/train:main,side eval:main`."""
        return f"{self.namespace}/{of_users(self.users or ((self.pod, self.container),))}"

    @property
    def short(self) -> str:
        """Return the name without the containers: `default/train`, or `default/train +1`."""
        others = len({pod for pod, _ in self.users} - {self.pod})
        return f"{self.namespace}/{self.pod}" + (f" +{others}" if others else "")

    @property
    def held(self) -> float | None:
        """Return bytes: by the books, or where there are none by the driver."""
        return self.measured if self.used is None else self.used

    @property
    def taken(self) -> float | None:
        """Return percent of the GPU's time: by the books, or where there are none by the driver."""
        return self.busy if self.share is None else self.share


@dataclass(frozen=True, slots=True)
class GpuRow:
    """One GPU. memory…: bytes. cores: percent of its time that is granted. xids: how many.

    unfit: the word for one that is not healthy.
    """

    index: int
    uuid: str
    model: str
    bus_id: str
    healthy: bool
    memory: float
    memory_granted: float
    cores: float
    memory_used: float | None = None
    busy: float | None = None
    celsius: float | None = None
    watts: float | None = None
    xids: int = 0
    containers: tuple[ContainerRow, ...] = ()
    unfit: str = "ill"


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node at one look. name: empty where the agent did not say it.

    answers: whether the driver does. unregistered: resources that the kubelet does not know.
    """

    name: str
    version: str
    answers: bool
    unregistered: tuple[str, ...]
    gpus: tuple[GpuRow, ...]

    @property
    def containers(self) -> int:
        """Return how many different ones have GPUs here."""
        return len({row.name for gpu in self.gpus for row in gpu.containers})


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one agent. agent: its URL. node: the last picture; None: there never was.

    at: monotonic seconds of that picture. trouble: why there is no newer one; empty: it is new.
    """

    agent: str
    node: NodeView | None = None
    at: float = 0.0
    trouble: str = ""

    @property
    def name(self) -> str:
        """Return the node's name, or where its agent is."""
        known = self.node.name if self.node else ""
        return known or self.agent.partition("//")[2].rstrip("/") or self.agent

    @property
    def away(self) -> bool:
        return bool(self.trouble)


def of_users(users: Iterable[tuple[str, str]]) -> str:
    """List containers by pod and name, each pod once: `train:main,side eval:main`."""
    pods: dict[str, list[str]] = {}
    for pod, container in users:
        pods.setdefault(pod, []).append(container)
    return " ".join(f"{pod}:{','.join(names)}".rstrip(":") for pod, names in pods.items())


def as_json(seen: Seen) -> dict[str, Any]:
    """Return one agent's node for programs; numbers in bytes, percent, seconds, as above."""
    if seen.node is None:
        return {"agent": seen.agent, "error": seen.trouble}
    node = seen.node
    return {
        "agent": seen.agent,
        "node": node.name or None,
        "version": node.version,
        "driver_answers": node.answers,
        "not_registered": list(node.unregistered),
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "model": gpu.model,
                "bus_id": gpu.bus_id,
                "healthy": gpu.healthy,
                "memory_bytes": gpu.memory,
                "memory_used_bytes": gpu.memory_used,
                "memory_granted_bytes": gpu.memory_granted,
                "cores_granted_percent": gpu.cores,
                "utilization_percent": gpu.busy,
                "temperature_celsius": gpu.celsius,
                "power_watts": gpu.watts,
                "xid_errors": gpu.xids,
                "containers": [
                    {
                        "pod": f"{row.namespace}/{row.pod}",
                        "container": row.container,
                        "claim": row.claim and row.claim[0],
                        "users": [{"pod": pod, "container": name} for pod, name in row.users],
                        "memory_limit_bytes": row.limit,
                        "memory_used_bytes": row.used,
                        "memory_peak_bytes": row.peak,
                        "memory_measured_bytes": row.measured,
                        "memory_refusals": row.refusals,
                        "share_promised_percent": None if math.isnan(row.granted) else row.granted,
                        "share_ceiling_percent": None if math.isnan(row.ceiling) else row.ceiling,
                        "share_percent": row.share,
                        "utilization_percent": row.busy,
                        "throttled_seconds": row.throttled_seconds,
                        "launches": row.launches,
                        "launches_throttled": row.throttled_launches,
                        "processes": row.processes,
                        "unlimited_processes": dict(row.unlimited),
                    }
                    for row in gpu.containers
                ],
            }
            for gpu in node.gpus
        ],
    }

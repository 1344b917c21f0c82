"""Containers as values: what a cgroup, and what a container runtime, says of one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpumanager.ids import ContainerID, PodUID


@dataclass(frozen=True, slots=True)
class Container:
    """A container of a pod, by the names Kubernetes gave it and the one its runtime did."""

    container_id: ContainerID
    pod_uid: PodUID
    pod_namespace: str
    pod_name: str
    name: str

    def __str__(self) -> str:
        return f"{self.pod_namespace}/{self.pod_name} ({self.name})"


@dataclass(frozen=True, slots=True)
class Bind:
    """A path of the host and what the container sees it as."""

    host: str
    container: str


@dataclass(frozen=True, slots=True)
class LiveContainer:
    """A running container and what it was started with.

    devices: as asked for; where the runtime tells only what a container sees, both paths are that,
    and a privileged container has all of the host's. pid: of its first process; 0: not told.
    annotations: the container's, among them those of the Allocate response.
    """

    container: Container
    pid: int = 0
    mounts: tuple[Bind, ...] = ()
    devices: tuple[Bind, ...] = ()
    envs: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def source(self, container_path: str) -> str | None:
        """Return the host's path of what is mounted there; None where nothing is."""
        return next((m.host for m in self.mounts if m.container == container_path), None)


class LiveContainers(Protocol):
    """Lists what runs on this node."""

    async def list(self) -> tuple[LiveContainer, ...]:
        """List all running containers of pods, without sandboxes; raises RuntimeUnavailable."""

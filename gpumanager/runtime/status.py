"""Containers as values, and a container's CRI status as such. Pure.

CRI itself tells mounts, labels and annotations. The pid, the devices and the environment are in the
JSON that runtimes add on demand: containerd and CRI-O give the OCI `runtimeSpec`, containerd also
the `config` it was asked for (whose environment lacks the image's own). dockershim adds nothing.
What cannot be understood there is left out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

from gpumanager.ids import ContainerID, PodUID
from gpumanager.runtime.api import runtime_v1_pb2 as pb

T = TypeVar("T")


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


LABEL_POD_UID: Final = "io.kubernetes.pod.uid"
LABEL_POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
LABEL_POD_NAME: Final = "io.kubernetes.pod.name"
LABEL_CONTAINER: Final = "io.kubernetes.container.name"


def container_of(container_id: str, labels: Mapping[str, str]) -> Container | None:
    """Read the labels that the kubelet gives; None for a container that it did not make."""
    uid, name = labels.get(LABEL_POD_UID), labels.get(LABEL_CONTAINER)
    if not uid or not name:
        return None
    return Container(
        ContainerID(container_id),
        PodUID(uid),
        labels.get(LABEL_POD_NAMESPACE, ""),
        labels.get(LABEL_POD_NAME, ""),
        name,
    )


def live_container(answer: pb.ContainerStatusResponse) -> LiveContainer | None:
    """Read a status; None for a container that does not run, or is of no pod."""
    status = answer.status
    container = container_of(status.id, status.labels)
    if container is None or status.state != pb.CONTAINER_RUNNING:
        return None
    try:
        told = json.loads(answer.info.get("info") or "{}")
    except (ValueError, RecursionError):
        told = None
    spec, config = _at(told, dict, "runtimeSpec"), _at(told, dict, "config")
    envs = {
        name: value
        for word in _at(_at(spec, dict, "process"), list, "env") or ()
        if isinstance(word, str)
        for name, _, value in [word.partition("=")]
    }
    return LiveContainer(
        container,
        pid=_at(told, int, "pid") or 0,
        mounts=tuple(Bind(mount.host_path, mount.container_path) for mount in status.mounts),
        devices=_devices(config) or _devices(_at(spec, dict, "linux")),
        envs=envs
        or {
            _at(row, str, "key") or "": _at(row, str, "value") or ""
            for row in _at(config, list, "envs") or ()
        },
        annotations=dict(status.annotations),
    )


def _at(content: Any, kind: type[T], name: str) -> T | None:
    """Return the field of an object of which nothing is certain; None for another kind."""
    value = content.get(name) if isinstance(content, dict) else None
    return value if type(value) is kind else None


def _devices(source: Any) -> tuple[Bind, ...]:
    """Return devices of the configuration, or of the OCI spec, which has no path of the host."""
    rows = _at(source, list, "devices") or ()
    named = ((_at(row, str, "container_path") or _at(row, str, "path"), row) for row in rows)
    return tuple(Bind(_at(row, str, "host_path") or seen, seen) for seen, row in named if seen)

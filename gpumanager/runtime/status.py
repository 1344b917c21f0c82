"""A container's CRI status as values. Pure.

CRI itself tells mounts, labels and annotations. The pid, the devices and the environment are in the
JSON that runtimes add on demand: containerd and CRI-O give the OCI `runtimeSpec`, containerd also
the `config` it was asked for (whose environment lacks the image's own). dockershim adds nothing.
What cannot be understood there is left out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from gpumanager.ids import AllocationID, ContainerID, PodUID
from gpumanager.names import CONTAINER_VCUDA
from gpumanager.runtime.api import runtime_v1_pb2 as pb
from gpumanager.runtime.values import Bind, Container, LiveContainer

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
    more = _Fields.parse(answer.info.get("info", ""))
    spec, config = more.fields("runtimeSpec"), more.fields("config")
    words = spec.fields("process").words("env")
    return LiveContainer(
        container,
        pid=more.number("pid"),
        mounts=tuple(Bind(mount.host_path, mount.container_path) for mount in status.mounts),
        devices=tuple(_devices(config)) or tuple(_devices(spec.fields("linux"))),
        envs={name: value for name, _, value in (word.partition("=") for word in words)}
        or {row.text("key"): row.text("value") for row in config.rows("envs")},
        annotations=dict(status.annotations),
    )


def by_allocation(
    containers: Iterable[LiveContainer], directory: Path
) -> dict[AllocationID, tuple[LiveContainer, ...]]:
    """Group containers by allocation: what each has mounted of `directory` at /etc/vcuda."""
    found: dict[AllocationID, tuple[LiveContainer, ...]] = {}
    for container in containers:
        source = container.source(str(CONTAINER_VCUDA))
        if source is not None and Path(source).parent == directory:
            name = AllocationID(Path(source).name)
            found[name] = (*found.get(name, ()), container)
    return found


class _Fields:
    """A JSON object of which nothing is certain."""

    def __init__(self, content: Any) -> None:
        self._content = content if isinstance(content, dict) else {}

    @classmethod
    def parse(cls, text: str) -> "_Fields":
        try:
            return cls(json.loads(text or "{}"))
        except (ValueError, RecursionError):
            return cls({})

    def fields(self, name: str) -> "_Fields":
        return _Fields(self._content.get(name))

    def rows(self, name: str) -> Iterator["_Fields"]:
        return (_Fields(row) for row in self._list(name))

    def words(self, name: str) -> Iterator[str]:
        return (word for word in self._list(name) if isinstance(word, str))

    def text(self, name: str) -> str:
        value = self._content.get(name)
        return value if isinstance(value, str) else ""

    def number(self, name: str) -> int:
        value = self._content.get(name)
        return value if type(value) is int else 0

    def _list(self, name: str) -> list[Any]:
        value = self._content.get(name)
        return value if isinstance(value, list) else []


def _devices(source: _Fields) -> Iterator[Bind]:
    """Yield devices of the configuration, or of the OCI spec, which has no path of the host."""
    for row in source.rows("devices"):
        seen = row.text("container_path") or row.text("path")
        if seen:
            yield Bind(row.text("host_path") or seen, seen)

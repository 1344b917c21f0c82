"""Volumes of a pod, as far as a simulated node has them, and where containers mount them.

emptyDir and hostPath are there, and ConfigMaps and Secrets given in the same YAML. Every other kind
is refused by its name, because a container that finds no data would tell nothing about the pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from gpumanager.sim.manifest.sources import ConfigData
from gpumanager.sim.manifest.yaml_text import Value, checked_name, optional, required, rows
from gpumanager.sim.names import LABEL

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the API server mounts a token in every pod; here is no API server that would take one."""
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105 - how such a volume's name begins
_MOUNT: Final = (
    *("name", "mountPath", "mountPropagation", "readOnly", "recursiveReadOnly"),
    *("subPath", "subPathExpr"),
)
_SOURCE: Final = ("defaultMode", "items", "name", "optional", "secretName")
_KINDS: Final = ("emptyDir", "hostPath", "configMap", "secret")


@dataclass(frozen=True, slots=True)
class PodVolume:
    """host: a path of the host; empty: a directory made for the pod, with these files in it."""

    name: str
    host: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class VolumeMount:
    volume: str
    path: str
    sub_path: str = ""
    read_only: bool = False


def read_volumes(value: Value | None, namespace: str, sources: ConfigData) -> tuple[PodVolume, ...]:
    """Read `spec.volumes`; raises InputError."""
    found = []
    for row in rows(value):
        fields = row.fields()
        name = required(fields, "name", row)
        checked_name(name.text(), name, LABEL)
        kinds = [key for key in fields if key != "name"]
        if name.text().startswith(_TOKEN_VOLUME):
            continue
        if kinds not in [[kind] for kind in _KINDS]:
            other = ", ".join(kinds) or "volume without a kind"
            raise row.error(
                f"volume {name.text()}: a simulated node has no {other}, only {', '.join(_KINDS)}"
            )
        found.append(_volume(name.text(), kinds[0], fields[kinds[0]], namespace, sources))
    return tuple(found)


def _volume(name: str, kind: str, value: Value, namespace: str, sources: ConfigData) -> PodVolume:
    if kind == "emptyDir":
        if not value.empty:
            value.known_fields(("medium", "sizeLimit"))
        return PodVolume(name)
    if kind == "hostPath":
        fields = value.known_fields(("path", "type"))
        return PodVolume(name, host=absolute(required(fields, "path", value)))
    fields = value.known_fields(_SOURCE)
    named, of = ("secretName", "Secret") if kind == "secret" else ("name", "ConfigMap")
    data = sources.find(of, namespace, value, optional(fields, named)) or {}
    if (items := optional(fields, "items")) is None:
        return PodVolume(name, files=data, read_only=True)
    files = {}
    for item in items.items():
        row = item.known_fields(("key", "mode", "path"))
        key, path = required(row, "key", item), required(row, "path", item)
        if key.text() not in data:
            raise key.error(f"no key {key.text()} in it")
        files[_inside(path)] = data[key.text()]
    return PodVolume(name, files=files, read_only=True)


def read_mounts(value: Value | None, volumes: Mapping[str, PodVolume]) -> tuple[VolumeMount, ...]:
    """Read a container's `volumeMounts`; raises InputError."""
    found = []
    for row in rows(value):
        fields = row.known_fields(_MOUNT)
        name, path = required(fields, "name", row), required(fields, "mountPath", row)
        if path.text() == SERVICE_ACCOUNT:
            continue
        if (volume := volumes.get(name.text())) is None:
            raise name.error(f"spec.volumes has no {name.text()}")
        if "subPathExpr" in fields:
            raise fields["subPathExpr"].error("a simulated node has only subPath")
        inside, read_only = optional(fields, "subPath"), optional(fields, "readOnly")
        sub_path = _inside(inside) if inside else ""
        fixed = volume.read_only or bool(read_only and read_only.boolean())
        found.append(VolumeMount(name.text(), absolute(path), sub_path, fixed))
    return tuple(found)


def _inside(value: Value) -> str:
    path = PurePosixPath(value.text())
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise value.error(f"{value.text()!r} is not a path inside of the volume")
    return str(path)


def absolute(value: Value) -> str:
    if not value.text().startswith("/"):
        raise value.error(f"{value.text()!r} is not an absolute path")
    return value.text()

"""Volumes of a pod, as far as a simulated node has them, and where containers mount them.

emptyDir and hostPath are there, and ConfigMaps and Secrets given in the same YAML. Every other kind
is refused by its name, because a container that finds no data would tell nothing about the pod.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from gpumanager.sim.manifest.sources import ConfigData
from gpumanager.sim.manifest.yaml_text import Fields, Value, checked_name
from gpumanager.sim.names import LABEL

SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the API server mounts a token in every pod; here is no API server that would take one."""
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105 - how such a volume's name begins
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


def read_volumes(
    rows: Sequence[Value], namespace: str, sources: ConfigData
) -> tuple[PodVolume, ...]:
    """Read `spec.volumes`; raises InputError."""
    found = []
    for row in rows:
        fields = row.fields()
        name = checked_name(fields.required("name").text(), fields["name"], LABEL)
        kinds = [key for key in fields if key != "name"]
        if name.startswith(_TOKEN_VOLUME):
            continue
        if kinds not in [[kind] for kind in _KINDS]:
            other = ", ".join(kinds) or "volume without a kind"
            raise row.error(f"volume {name}: a simulated node has no {other}, only {_LISTED}")
        found.append(_volume(name, kinds[0], fields, namespace, sources))
    return tuple(found)


_LISTED: Final = ", ".join(_KINDS)


def _volume(name: str, kind: str, volume: Fields, namespace: str, sources: ConfigData) -> PodVolume:
    if kind == "emptyDir":
        return PodVolume(name)
    fields = volume[kind].fields()
    if kind == "hostPath":
        return PodVolume(name, host=absolute(fields.required("path")))
    named, of = ("secretName", "Secret") if kind == "secret" else ("name", "ConfigMap")
    data = sources.find(of, namespace, fields, named) or {}
    if fields.optional("items") is None:
        return PodVolume(name, files=data, read_only=True)
    files = {}
    for row in map(Value.fields, fields.rows("items")):
        key, path = row.required("key"), row.required("path")
        if key.text() not in data:
            raise key.error(f"no key {key.text()} in it")
        files[_inside(path)] = data[key.text()]
    return PodVolume(name, files=files, read_only=True)


def read_mounts(rows: Sequence[Value], volumes: Mapping[str, PodVolume]) -> tuple[VolumeMount, ...]:
    """Read a container's `volumeMounts`; raises InputError."""
    found = []
    for fields in map(Value.fields, rows):
        name, path = fields.required("name"), fields.required("mountPath")
        if path.text() == SERVICE_ACCOUNT:
            continue
        if (volume := volumes.get(name.text())) is None:
            raise name.error(f"spec.volumes has no {name.text()}")
        if "subPathExpr" in fields:
            raise fields["subPathExpr"].error("a simulated node has only subPath")
        inside = fields.optional("subPath")
        sub_path = _inside(inside) if inside else ""
        fixed = volume.read_only or fields.flag("readOnly")
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

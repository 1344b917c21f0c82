"""Volumes of a pod, as far as a simulated node has them, and ConfigMaps and Secrets.

emptyDir and hostPath are there, and ConfigMaps and Secrets given in the same YAML. Every other kind
is refused by its name, because a container that finds no data would tell nothing about the pod.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from gpumanager.sim.manifest.yaml_text import LABEL, Fields

CONFIG_KINDS: Final = ("ConfigMap", "Secret")
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Where the API server mounts a token in every pod; here is no API server that would take one."""
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105 - how such a volume's name begins
_KINDS: Final = ("emptyDir", "hostPath", "configMap", "secret")
_DATA_KEY: Final = re.compile(r"(?!\.{1,2}$)[-._a-zA-Z0-9]{1,253}")

ConfigData = Mapping[tuple[str, str, str], Mapping[str, bytes]]
"""What is in ConfigMaps and Secrets, by kind, namespace and name."""


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


def read_config(kind: str, fields: Fields) -> Mapping[str, bytes]:
    """Return what is in a ConfigMap or a Secret; raises InputError."""
    encoded, plain = ("data", "stringData") if kind == "Secret" else ("binaryData", "data")
    data = {}
    for given in (fields.below(encoded), fields.below(plain)):
        for key, text in given.items():
            if not _DATA_KEY.fullmatch(key):
                rule = "letters, digits, '-', '_' and '.', at most 253 of them"
                raise given.error(f"{key[:80]!r} is not a name: {rule}", key)
            data[key] = text.encode()
            if key in fields.below(plain):
                continue
            try:
                data[key] = base64.b64decode("".join(text.split()), validate=True)
            except binascii.Error as error:
                raise given.error("not base64; stringData takes plain text", key) from error
    return data


def find_config(
    data: ConfigData, kind: str, namespace: str, fields: Fields, name: str = "name"
) -> Mapping[str, bytes]:
    """Return the data of the one that `fields` name; nothing where it is not there and is
    `optional`. Raises InputError."""
    found = data.get((kind, namespace, fields.required(name)))
    if found is None and not fields.get("optional"):
        raise fields.error(
            f"no {kind} {fields[name]} in namespace {namespace} of what was given here; a "
            "simulated node has no others",
            name,
        )
    return found or {}


def read_volumes(rows: Iterable[Fields], namespace: str, data: ConfigData) -> tuple[PodVolume, ...]:
    """Read `spec.volumes`; raises InputError."""
    found = []
    for row in rows:
        name = row.name("name", LABEL)
        if name.startswith(_TOKEN_VOLUME):
            continue
        kinds = [key for key in row.places if key != "name"]
        if kinds not in [[kind] for kind in _KINDS]:
            other = ", ".join(kinds) or "volume without a kind"
            only = ", ".join(_KINDS)
            raise row.error(f"volume {name}: a simulated node has no {other}, only {only}")
        fields = row.below(kinds[0])
        match kinds[0]:
            case "emptyDir":
                found.append(PodVolume(name))
            case "hostPath":
                found.append(PodVolume(name, host=absolute(fields, "path")))
            case kind:
                named, of = ("secretName", "Secret") if kind == "secret" else ("name", "ConfigMap")
                files = find_config(data, of, namespace, fields, named)
                if "items" in fields:
                    files = dict(_item(item, files) for item in fields["items"])
                found.append(PodVolume(name, files=files, read_only=True))
    return tuple(found)


def _item(item: Fields, files: Mapping[str, bytes]) -> tuple[str, bytes]:
    if item.required("key") not in files:
        raise item.error(f"no key {item['key']} in it", "key")
    return _inside(item, "path"), files[item["key"]]


def read_mounts(
    rows: Iterable[Fields], volumes: Mapping[str, PodVolume]
) -> tuple[VolumeMount, ...]:
    """Read a container's `volumeMounts`; raises InputError."""
    found = []
    for fields in rows:
        name, path = fields.required("name"), absolute(fields, "mountPath")
        if path == SERVICE_ACCOUNT:
            continue
        if name not in volumes:
            raise fields.error(f"spec.volumes has no {name}", "name")
        if "subPathExpr" in fields:
            raise fields.error("a simulated node has only subPath", "subPathExpr")
        sub_path = _inside(fields, "subPath") if "subPath" in fields else ""
        fixed = volumes[name].read_only or fields.get("readOnly", False)
        found.append(VolumeMount(name, path, sub_path, fixed))
    return tuple(found)


def _inside(fields: Fields, name: str) -> str:
    path = PurePosixPath(fields.required(name))
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise fields.error(f"{fields[name]!r} is not a path inside of the volume", name)
    return str(path)


def absolute(fields: Fields, name: str) -> str:
    found = str(fields.required(name))
    if not found.startswith("/"):
        raise fields.error(f"{found!r} is not an absolute path", name)
    return found

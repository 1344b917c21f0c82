"""ConfigMaps and Secrets given beside the pods: where variables and files of containers come from.

A simulated node has no API server to ask for them, so what is not given in the same YAML is not
there.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from gpumanager.sim.manifest.yaml_text import Value, checked_name, optional
from gpumanager.sim.names import DATA_KEY

KINDS: Final = ("ConfigMap", "Secret")
_TYPE_AND_METADATA: Final = ("apiVersion", "kind", "metadata", "immutable", "data")
_FIELDS: Final = {
    "ConfigMap": (*_TYPE_AND_METADATA, "binaryData"),
    "Secret": (*_TYPE_AND_METADATA, "stringData", "type"),
}

Data = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ConfigData:
    """By kind, namespace and name."""

    data: Mapping[tuple[str, str, str], Data] = field(default_factory=dict)

    def find(self, kind: str, namespace: str, of: Value, name: Value | None) -> Data | None:
        """Return its data, None where it is not there and is `optional`; raises InputError."""
        if name is None:
            raise of.error("name is missing")
        found = self.data.get((kind, namespace, name.text()))
        fields = of.fields()
        if found is None and not ("optional" in fields and fields["optional"].boolean()):
            raise name.error(
                f"no {kind} {name.text()} in namespace {namespace} of what was given here; a "
                "simulated node has no others"
            )
        return found


def read_source(kind: str, value: Value) -> tuple[tuple[str, str, str], Data]:
    """Return its key in `ConfigData`, and what is in it; raises InputError."""
    fields = value.known_fields(_FIELDS[kind])
    if (metadata := optional(fields, "metadata")) is None:
        raise value.error("metadata is missing")
    meta = metadata.fields()
    if (name := optional(meta, "name")) is None:
        raise metadata.error("name is missing")
    namespace = optional(meta, "namespace")
    key = (kind, namespace.text() if namespace else "default", name.text())
    encoded = "data" if kind == "Secret" else "binaryData"
    plain = "stringData" if kind == "Secret" else "data"
    data = {}
    for row, text in _rows(fields, encoded):
        try:
            data[row] = base64.b64decode("".join(text.text().split()), validate=True)
        except binascii.Error as error:
            raise text.error("not base64; stringData takes plain text") from error
    return key, data | {row: text.text().encode() for row, text in _rows(fields, plain)}


def _rows(fields: Mapping[str, Value], name: str) -> Iterator[tuple[str, Value]]:
    found = optional(fields, name)
    for key, text in (found.fields() if found else {}).items():
        yield checked_name(key, text, DATA_KEY), text

"""ConfigMaps and Secrets given beside the pods: where variables and files of containers come from.

A simulated node has no API server to ask for them, so what is not given in the same YAML is not
there.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from gpumanager.sim.manifest.yaml_text import Fields, Value, checked_name, name_and_namespace
from gpumanager.sim.names import DATA_KEY

KINDS: Final = ("ConfigMap", "Secret")

Data = Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ConfigData:
    """By kind, namespace and name."""

    data: Mapping[tuple[str, str, str], Data] = field(default_factory=dict)

    def find(self, kind: str, namespace: str, fields: Fields, name: str = "name") -> Data | None:
        """Return the data of the one that `fields` name, None where it is not there and is
        `optional`; raises InputError."""
        named = fields.required(name)
        found = self.data.get((kind, namespace, named.text()))
        if found is None and not fields.flag("optional"):
            raise named.error(
                f"no {kind} {named.text()} in namespace {namespace} of what was given here; a "
                "simulated node has no others"
            )
        return found

    def find_key(self, kind: str, namespace: str, fields: Fields) -> bytes | None:
        """Return what is under a key, None where it is not there and is `optional`."""
        key = fields.required("key")
        found = self.find(kind, namespace, fields)
        if found is not None and key.text() not in found and not fields.flag("optional"):
            raise key.error(f"no key {key.text()} in it")
        return None if found is None else found.get(key.text())


def read_source(kind: str, value: Value) -> tuple[tuple[str, str, str], Data]:
    """Return its key in `ConfigData`, and what is in it; raises InputError."""
    fields = value.fields()
    name, namespace = name_and_namespace(fields)
    encoded, plain = ("data", "stringData") if kind == "Secret" else ("binaryData", "data")
    data = {}
    for row, text in fields.below(encoded).items():
        try:
            data[row] = base64.b64decode("".join(text.text().split()), validate=True)
        except binascii.Error as error:
            raise text.error("not base64; stringData takes plain text") from error
    given = fields.below(plain)
    for row, text in (*fields.below(encoded).items(), *given.items()):
        checked_name(row, text, DATA_KEY)
    data |= {row: text.text().encode() for row, text in given.items()}
    return (kind, namespace, name), data

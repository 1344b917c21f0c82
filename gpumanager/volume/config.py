"""`volume.conf`: which of the driver's programs and libraries containers get.

    {"volume": [{"name": "nvidia", "mode": "ro", "base": "/etc/gpu-manager/vdriver",
                 "components": {"binaries": ["nvidia-smi"], "libraries": ["libcuda.so"]}}]}

The original's format. Libraries are prefixes of names in `ld.so.cache`. The volume named `nvidia`
is mounted into containers that share a GPU; the other one, whatever its name, into those that own
theirs. Unlike the original, anything unknown is refused: a misspelt key would silently leave
containers without a library.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from gpumanager.errors import InputError

SHARED: Final = "nvidia"
"""The volume in which the shims take the place of the driver's libraries."""

SHIPPED: Final = Path(__file__).with_name("volume.conf")
"""The configuration that comes with the project."""

LARGEST_FILE: Final = 1 << 20

_VOLUME_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_COMPONENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
_KINDS: Final[Mapping[type, str]] = {dict: "an object", list: "a list", str: "a text"}


@dataclass(frozen=True, slots=True)
class Volume:
    """One driver directory: its name, where it is made, the programs and library prefixes in it."""

    name: str
    base: Path
    binaries: tuple[str, ...]
    libraries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class VolumeConfig:
    """source: the file it was read from, for messages."""

    source: Path
    shared: Volume
    whole: Volume


def read_config(path: Path) -> VolumeConfig:
    """Read a volume.conf; raises InputError naming the file, the place in it and the cause."""
    return _Reader(path).config(read_json(path))


def read_json(path: Path) -> Any:
    """Read a JSON file of an operator; raises InputError, for an endless file too."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise InputError(path, f"longer than {LARGEST_FILE >> 20} MiB: not a configuration")
        return json.loads(content.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise InputError(path, f"not JSON: {error.msg}", line=error.lineno) from error
    except UnicodeDecodeError as error:
        raise InputError(path, "not JSON: it is not text in UTF-8") from error
    except RecursionError as error:
        raise InputError(path, "not a configuration: nested too deeply") from error
    except (OSError, ValueError) as error:
        raise InputError(path, f"cannot be read: {getattr(error, 'strerror', error)}") from error


@dataclass(frozen=True, slots=True)
class _Reader:
    """Takes the parsed JSON apart; every refusal says where in the file."""

    path: Path

    def config(self, document: Any) -> VolumeConfig:
        fields = self.fields(document, "", {"volume": list})
        entries = fields["volume"]
        volumes = [self.volume(entry, f"volume[{i}]") for i, entry in enumerate(entries)]
        self.refuse_repeated([volume.name for volume in volumes], "volume")
        shared = [volume for volume in volumes if volume.name == SHARED]
        whole = [volume for volume in volumes if volume.name != SHARED]
        if len(shared) != 1 or len(whole) != 1:
            self.refuse("volume", f"expected two volumes, {SHARED!r} and another, usually 'origin'")
        return VolumeConfig(self.path, shared[0], whole[0])

    def volume(self, entry: Any, where: str) -> Volume:
        kinds = {"name": str, "mode": str, "base": str, "components": dict}
        fields = self.fields(entry, where, kinds)
        if not _VOLUME_NAME.fullmatch(fields["name"]):
            self.refuse(f"{where}.name", f"{fields['name']!r} cannot name a directory")
        if fields["mode"] != "ro":
            self.refuse(f"{where}.mode", f"unknown mode {fields['mode']!r}; driver mounts are 'ro'")
        if not fields["base"].startswith("/") or "\0" in fields["base"]:
            self.refuse(f"{where}.base", f"{fields['base']!r} is not an absolute path")
        where = f"{where}.components"
        lists = self.fields(fields["components"], where, {"binaries": list, "libraries": list})
        if not lists["libraries"]:
            self.refuse(f"{where}.libraries", "empty")
        return Volume(
            name=fields["name"],
            base=Path(fields["base"]),
            binaries=self.names(lists["binaries"], f"{where}.binaries"),
            libraries=self.names(lists["libraries"], f"{where}.libraries"),
        )

    def fields(self, value: Any, where: str, kinds: Mapping[str, type]) -> dict[str, Any]:
        """Return the members of an object, which are exactly these, of these types."""
        self.expect(value, dict, where)
        prefix = f"{where}." if where else ""
        for name in value:
            if name not in kinds:
                self.refuse(f"{prefix}{name}", f"unknown; known are {', '.join(kinds)}")
        for name, kind in kinds.items():
            if name not in value:
                self.refuse(f"{prefix}{name}", "missing")
            self.expect(value[name], kind, f"{prefix}{name}")
        return dict(value)

    def names(self, values: list[Any], where: str) -> tuple[str, ...]:
        for i, value in enumerate(values):
            self.expect(value, str, f"{where}[{i}]")
            if not _COMPONENT.fullmatch(value):
                self.refuse(f"{where}[{i}]", f"{value!r} is not a file name")
        self.refuse_repeated(values, where)
        return tuple(values)

    def refuse_repeated(self, values: list[str], where: str) -> None:
        for value, times in Counter(values).items():
            if times > 1:
                self.refuse(where, f"{value!r} stands there {times} times")

    def expect(self, value: Any, kind: type, where: str) -> None:
        if not isinstance(value, kind):
            self.refuse(where or "the file", f"expected {_KINDS[kind]}")

    def refuse(self, where: str, cause: str) -> NoReturn:
        raise InputError(self.path, f"{where}: {cause}")

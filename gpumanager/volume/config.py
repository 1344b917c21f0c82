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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpumanager.errors import InputError

SHARED: Final = "nvidia"
"""The volume in which the shims take the place of the driver's libraries."""

SHIPPED: Final = Path(__file__).with_name("volume.conf")
"""The configuration that comes with the project."""

LARGEST_FILE: Final = 1 << 20

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*"), "{!r} is not a file name"
_FORM: Final[Mapping[str, Any]] = {
    "volume": [
        {
            "name": (re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*"), "{!r} cannot name a directory"),
            "mode": (re.compile("ro"), "unknown mode {!r}; driver mounts are 'ro'"),
            "base": (re.compile(r"/[^\0]*"), "{!r} is not an absolute path"),
            "components": {"binaries": [_FILE_NAME], "libraries": [_FILE_NAME]},
        }
    ]
}
"""Objects have exactly these members, lists any number of such, texts a pattern."""
_KINDS: Final[Mapping[type, tuple[type, str]]] = {
    dict: (dict, "an object"),
    list: (list, "a list"),
    tuple: (str, "a text"),
}


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
    document = read_json(path)
    for where, cause in _faults(document, _FORM, ""):
        raise InputError(path, f"{where or 'the file'}: {cause}")
    volumes = []
    for i, entry in enumerate(document["volume"]):
        lists = entry["components"]
        if not lists["libraries"]:
            raise InputError(path, f"volume[{i}].components.libraries: empty")
        base, binaries, libraries = Path(entry["base"]), lists["binaries"], lists["libraries"]
        volumes.append(Volume(entry["name"], base, tuple(binaries), tuple(libraries)))
    shared = [volume for volume in volumes if volume.name == SHARED]
    whole = [volume for volume in volumes if volume.name != SHARED]
    if len(shared) != 1 or len(whole) != 1:
        expected = f"expected two volumes, {SHARED!r} and another, usually 'origin'"
        raise InputError(path, f"volume: {expected}")
    return VolumeConfig(path, shared[0], whole[0])


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


def _faults(value: Any, form: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield where a value differs from its form, and how; whoever goes on after one may fail."""
    kind, words = _KINDS[type(form)]
    fits = isinstance(value, kind)
    if not fits:
        yield where, f"expected {words}"
    elif kind is dict:
        prefix = f"{where}." if where else ""
        for name in (*value, *form):
            if name not in form:
                yield f"{prefix}{name}", f"unknown; known are {', '.join(form)}"
            elif name not in value:
                yield f"{prefix}{name}", "missing"
            else:
                yield from _faults(value[name], form[name], f"{prefix}{name}")
    elif kind is list:
        for i, one in enumerate(value):
            yield from _faults(one, form[0], f"{where}[{i}]")
        names = Counter(one["name"] if isinstance(one, dict) else one for one in value)
        again = [
            f"{name!r} stands there {times} times" for name, times in names.items() if times > 1
        ]
        yield from ((where, cause) for cause in again)
    elif not form[0].fullmatch(value):
        yield where, form[1].format(value)

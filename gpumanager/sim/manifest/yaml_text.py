"""YAML with its line numbers: every field knows where it stands, so that every complaint can say.

Mappings are `Fields`, lists are `Items`; a string is a string, and any other scalar is a `Written`
until its reader says of which type it has to be. A field without a value counts as not there.
"""

import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from gpumanager.errors import InputError

STDIN: Final = Path("-")
LARGEST_FILE: Final = 1 << 20
DEEPEST: Final = 60
"""Levels of nesting; what people write has about ten."""
MOST_VALUES: Final = 200_000
"""Of one text, each as often as aliases repeat it."""
LONGEST_WORDS: Final = 300
"""Characters of a path or a cause in a message; the files of others are not repeated in it."""
LONGEST_NUMBER: Final = 18
LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN: Final = re.compile(rf"(?=.{{1,253}}$){LABEL.pattern}(\.{LABEL.pattern})*")
RULES: Final = {
    LABEL: "lower case letters, digits and '-', at most 63 of them",
    SUBDOMAIN: "lower case letters, digits, '-' and '.', at most 253 of them",
}
"""What the API server takes as names."""
_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = {
    "dict": "a mapping",
    "list": "a list",
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "quantity": "one value",
}


class Mark(NamedTuple):
    """Where a value stands. path: how a reader finds it, such as `spec.containers[0].name`."""

    source: str
    line: int
    path: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"

    def error(self, cause: str) -> InputError:
        words = (self.path, cause) if self.path else (cause,)
        short = (one if len(one) <= LONGEST_WORDS else f"{one[:LONGEST_WORDS]}…" for one in words)
        return InputError(self.source, ": ".join(short), line=self.line)


class Written(str):
    """A scalar that is no string, as it is written."""

    __slots__ = ("kind",)
    kind: str


class Fields(dict[str, Any]):
    """A mapping. places: of all its fields, those without a value too."""

    def __init__(self, place: Mark) -> None:
        super().__init__()
        self.place = place
        self.places: dict[str, Mark] = {}

    def error(self, cause: str, name: str = "") -> InputError:
        """Return a complaint about a field, or about all of it."""
        return self.places.get(name, self.place).error(cause)

    def required(self, name: str) -> Any:
        """Return a field that has to be there; raises InputError."""
        if name not in self:
            raise self.error(f"{name} is missing")
        return self[name]

    def below(self, name: str) -> "Fields":
        """Return a mapping; an empty one where it is not there."""
        return self[name] if name in self else Fields(self.place)

    def name(self, field: str, rule: re.Pattern[str]) -> str:
        """Return a field that has to be a name; raises InputError."""
        found = str(self.required(field))
        if not rule.fullmatch(found):
            raise self.error(f"{found[:80]!r} is not a name: {RULES[rule]}", field)
        return found

    def check_known(self, known: Mapping[str, Any]) -> None:
        """Raise InputError for a field that is not one of these."""
        for name, place in self.places.items():
            if name not in known:
                close = get_close_matches(name[:LONGEST_WORDS], known, n=1)
                raise place.error(f"unknown field{f'; did you mean {close[0]}?' if close else ''}")


class Items(list[Any]):
    """A list. places: of its items."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[Mark] = []


def typed(value: Any, kind: str, place: Mark) -> Any:
    """Return a value of a type: `str`, `int`, `bool`, `quantity`, `dict`, `list`, or `object` for
    what it is by its looks; raises InputError where it is another."""
    wanted = _KINDS.get(kind)
    kinds: dict[type, str] = {Fields: "a mapping", Items: "a list", str: "a string"}
    found = value.kind if isinstance(value, Written) else kinds.get(type(value), "empty")
    if kind == "quantity" and isinstance(value, str):
        return str(value)
    if wanted not in {None, found}:
        shown = f" {value}" if isinstance(value, str) else ""
        hint = ": put it in quotes" if kind == "str" and shown else ""
        raise place.error(f"expected {wanted}, found {found}{shown}{hint}")
    return _plain(value) if kind in {"int", "bool", "object"} else value


def _plain(value: Any) -> Any:
    if isinstance(value, Fields):
        value.update({name: _plain(one) for name, one in value.items()})
    elif isinstance(value, Items):
        value[:] = map(_plain, value)
    elif isinstance(value, Written):
        return yaml.safe_load(value) if value.kind in _KINDS.values() else str(value)
    return value


def read_names(fields: Fields) -> tuple[str, str]:
    """Return namespace and name of an object, which have to be as the API server takes them."""
    meta = fields.required("metadata")
    namespace = meta.name("namespace", LABEL) if "namespace" in meta else "default"
    return namespace, meta.name("name", SUBDOMAIN)


def read_text(path: Path) -> str:
    """Return the text of a file a user named, or of standard input for `-`; raises InputError."""
    source = name_of(path)
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with path.open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise InputError(source, f"longer than {LARGEST_FILE >> 20} MiB")
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(source, "not text in UTF-8") from error
    except (OSError, ValueError) as error:
        raise InputError(source, f"cannot be read: {getattr(error, 'strerror', error)}") from error


def name_of(path: Path) -> str:
    return "standard input" if path == STDIN else str(path)


def documents(text: str, source: str) -> list[Fields]:
    """Return the documents of a YAML text, without the empty ones; raises InputError."""
    try:
        nodes = list(yaml.compose_all(text, yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = int(mark.line) + 1 if mark is not None else None
        cause = f"not YAML: {error.problem or error.context}"
        raise InputError(source, cause, line=line) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(source, f"not YAML: {str(error).splitlines()[0]}") from error
    found = []
    for node in nodes:
        if node is not None:
            place = Mark(source, int(node.start_mark.line) + 1)
            found.append((_build(node, place, 0, itertools.count()), place))
    return [typed(value, "dict", place) for value, place in found if value is not None]


def _build(node: yaml.Node, place: Mark, depth: int, count: Iterator[int]) -> Any:
    if depth > DEEPEST or next(count) > MOST_VALUES:
        cause = f"nested more than {DEEPEST} levels deep, or more than {MOST_VALUES} values"
        raise InputError(place.source, cause)
    if isinstance(node, yaml.SequenceNode):
        rows = Items()
        for index, item in enumerate(node.value):
            line = int(item.start_mark.line) + 1
            rows.places.append(Mark(place.source, line, f"{place.path}[{index}]"))
            rows.append(_build(item, rows.places[-1], depth + 1, count))
        return rows
    if isinstance(node, yaml.MappingNode):
        fields = Fields(place)
        for key, item in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise place.error("a key must be a plain word")
            name, line = str(key.value), int(item.start_mark.line) + 1
            where = Mark(place.source, line, f"{place.path}.{name}".lstrip("."))
            if key.tag == f"{_TAG}merge" or name in fields.places:
                merge = "merge keys (<<) are not supported: write the fields out"
                raise where.error("given twice" if name in fields.places else merge)
            fields.places[name] = where
            if (value := _build(item, where, depth + 1, count)) is not None:
                fields[name] = value
        return fields
    return _scalar(str(node.value), node.tag.removeprefix(_TAG))


def _scalar(text: str, tag: str) -> str | None:
    if tag in {"str", "null"}:
        return text if tag == "str" else None
    written = Written(text)
    written.kind = _KINDS.get(tag, f"a {tag}")
    if tag == "int" and not text.lstrip("+-").isdecimal():
        written.kind = _KINDS["float"]
    if len(text) > LONGEST_NUMBER:
        written.kind = "too long a number"
    return written

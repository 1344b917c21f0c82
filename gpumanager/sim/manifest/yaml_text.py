"""YAML with its line numbers: every value knows where it stands, so that every complaint can say.

Values are read as PyYAML resolves them: `30` is an integer, `"30"` a string.
"""

import difflib
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from gpumanager.errors import InputError
from gpumanager.sim.names import LABEL, RULES, SUBDOMAIN

STDIN: Final = Path("-")
LARGEST_FILE: Final = 1 << 20
DEEPEST: Final = 60
"""Levels of nesting; what people write has about ten."""
LONGEST_WORDS: Final = 300
"""Characters of a path or a cause in a message; the files of others are not repeated in it."""

_KINDS: Final = {
    "tag:yaml.org,2002:str": "a string",
    "tag:yaml.org,2002:int": "an integer",
    "tag:yaml.org,2002:float": "a number",
    "tag:yaml.org,2002:bool": "a boolean",
    "tag:yaml.org,2002:null": "empty",
    "tag:yaml.org,2002:map": "a mapping",
    "tag:yaml.org,2002:seq": "a list",
}


@dataclass(frozen=True, slots=True)
class Value:
    """One value of a file. path: how a reader finds it, such as `spec.containers[0].name`."""

    source: str
    node: yaml.Node
    path: str = ""

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1

    @property
    def place(self) -> str:
        """Return file and line, for a message."""
        return f"{self.source}:{self.line}"

    @property
    def empty(self) -> bool:
        return bool(self.node.tag == "tag:yaml.org,2002:null")

    @property
    def kind(self) -> str:
        return _KINDS.get(self.node.tag, f"a {self.node.tag}")

    def error(self, cause: str) -> InputError:
        place = f"{_short(self.path)}: " if self.path else ""
        return InputError(self.source, place + _short(cause), line=self.line)

    def fields(self, known: Collection[str] | None = None) -> "Fields":
        """Return the fields of a mapping, of which only those `known` may be there; a name twice is
        an error."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.error(f"expected a mapping, found {self.kind}")
        found = Fields(self)
        for key, node in self.node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self.error("a key must be a plain word")
            if key.tag == "tag:yaml.org,2002:merge":
                raise self.error("merge keys (<<) are not supported: write the fields out")
            name = str(key.value)
            value = Value(self.source, node, f"{self.path}.{name}".lstrip("."))
            if name in found:
                raise value.error("given twice")
            if known is not None and name not in known:
                close = difflib.get_close_matches(name[:LONGEST_WORDS], known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise value.error(f"unknown field{hint}")
            found[name] = value
        return found

    def items(self) -> list["Value"]:
        if not isinstance(self.node, yaml.SequenceNode):
            raise self.error(f"expected a list, found {self.kind}")
        return [
            Value(self.source, node, f"{self.path}[{index}]")
            for index, node in enumerate(self.node.value)
        ]

    def text(self) -> str:
        """Return a string; a number or a boolean is not one, as the API server sees it."""
        if self.node.tag != "tag:yaml.org,2002:str":
            shown = f" {self.node.value}" if isinstance(self.node, yaml.ScalarNode) else ""
            hint = ": put it in quotes" if shown.strip() else ""
            raise self.error(f"expected a string, found {self.kind}{shown}{hint}")
        return str(self.node.value)

    def integer(self) -> int:
        """Return a plain decimal integer, not one in quotes."""
        written = self.scalar()
        if self.node.tag != "tag:yaml.org,2002:int" or not written.lstrip("+-").isdecimal():
            raise self.error(f"expected an integer, found {self.kind} {written!r}")
        if len(written) > len("100000000000"):
            raise self.error(f"{written} is too large")
        return int(written)

    def boolean(self) -> bool:
        """Return a boolean of YAML 1.1: true, false, yes, no, on, off."""
        written = self.scalar()
        if self.node.tag != "tag:yaml.org,2002:bool":
            raise self.error(f"expected true or false, found {self.kind} {written!r}")
        return written.lower() in ("true", "yes", "on")

    def scalar(self) -> str:
        """Return the text of any scalar, as it is written."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise self.error(f"expected one value, found {self.kind}")
        return str(self.node.value)


class Fields(dict[str, Value]):
    """The fields of the mapping `of`, by name. One that is empty counts as not there."""

    def __init__(self, of: Value) -> None:
        super().__init__()
        self.of = of

    def optional(self, name: str) -> Value | None:
        value = self.get(name)
        return None if value is None or value.empty else value

    def required(self, name: str) -> Value:
        """Return a field that has to be there; raises InputError."""
        value = self.optional(name)
        if value is None:
            raise self.of.error(f"{name} is missing")
        return value

    def below(self, name: str) -> "Fields":
        """Return the fields of a field; none where it is not there."""
        value = self.optional(name)
        return value.fields() if value else Fields(self.of)

    def rows(self, name: str) -> list[Value]:
        value = self.optional(name)
        return value.items() if value else []

    def text(self, name: str, default: str = "") -> str:
        value = self.optional(name)
        return value.text() if value else default

    def flag(self, name: str) -> bool:
        value = self.optional(name)
        return value is not None and value.boolean()


def name_and_namespace(fields: Fields) -> tuple[str, str]:
    """Read both of an object's metadata, which have to be as the API server takes them."""
    meta = fields.required("metadata").fields()
    name, namespace = meta.required("name"), meta.optional("namespace")
    return (
        checked_name(name.text(), name, SUBDOMAIN),
        checked_name(namespace.text(), namespace, LABEL) if namespace else "default",
    )


def checked_name(name: str, value: Value, rule: re.Pattern[str]) -> str:
    """Return the name; raises InputError, which points at `value`."""
    if not rule.fullmatch(name):
        raise value.error(f"{name[:80]!r} is not a name: {RULES[rule]}")
    return name


def _short(words: str) -> str:
    return words if len(words) <= LONGEST_WORDS else f"{words[:LONGEST_WORDS]}…"


def read_text(path: Path) -> str:
    """Return the text of a file a user named, or of standard input for `-`; raises InputError."""
    source = name_of(path)
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with path.open("rb") as file:
                content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        raise InputError(source, f"cannot be read: {getattr(error, 'strerror', error)}") from error
    if len(content) > LARGEST_FILE:
        raise InputError(source, f"longer than {LARGEST_FILE >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InputError(source, "not text in UTF-8") from error


def name_of(path: Path) -> str:
    return "standard input" if path == STDIN else str(path)


def documents(text: str, source: str) -> list[Value]:
    """Return the documents of a YAML text, without the empty ones; raises InputError."""
    try:
        nodes = [node for node in yaml.compose_all(text, yaml.SafeLoader) if node is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = int(mark.line) + 1 if mark is not None else None
        raise InputError(
            source, f"not YAML: {error.problem or error.context}", line=line
        ) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError(source, f"not YAML: {str(error).splitlines()[0]}") from error
    heights: dict[int, int] = {}
    for node in nodes:
        if _height(node, heights) > DEEPEST:
            raise InputError(source, f"nested more than {DEEPEST} levels deep")
    return [value for node in nodes if not (value := Value(source, node)).empty]


def _height(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the levels below and with a node; one that an alias puts inside itself is higher than
    any."""
    if id(node) not in known:
        known[id(node)] = DEEPEST
        children = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            children = [one for pair in node.value for one in pair]
        known[id(node)] = 1 + max((_height(child, known) for child in children), default=0)
    return known[id(node)]

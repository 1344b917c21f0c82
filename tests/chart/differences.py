"""What one rendering of the chart has otherwise than another, object by object.

    removed: Service gpu-manager-extender
    changed: DaemonSet gpu-manager-agent
    @@ 57 spec.template.spec.containers.agent.args
    -            - --driver-root=/host
    +            - --driver-root=/run/nvidia/driver
    added: ClusterRoleBinding gpu-manager-agent-scc
    | apiVersion: rbac.authorization.k8s.io/v1
    | …

The number is the line within the object before the change; the keys are for the reader.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Final

Objects = Mapping[str, Sequence[str]]
"""Lines by kind and name."""

_KIND: Final = re.compile(r"(?m)^kind: (\S+)$")
_NAME: Final = re.compile(r"(?m)^  name: (\S+)$")
_KEY: Final = re.compile(r" *(?:- )?(?:name: )?([^\s:{]+)")
_SECTION: Final = re.compile(r"(?m)^(?=(?:removed|changed|added): )")


class StaleDifference(Exception):
    """The difference was made from other objects: run `make chart`."""


def objects(text: str) -> Objects:
    """Of YAML documents; raises ValueError where one comes twice."""
    found: dict[str, Sequence[str]] = {}
    for document in re.split(r"(?m)^---\n", text):
        kind, name = _KIND.search(document), _NAME.search(document)
        if kind is None or name is None:
            continue
        if (key := f"{kind[1]} {name[1]}") in found:
            raise ValueError(f"{key} comes twice")
        found[key] = document.splitlines()
    return found


def text(found: Objects) -> str:
    return "".join(f"{line}\n" for lines in found.values() for line in ("---", *lines))


def difference(before: Objects, after: Objects) -> str:
    return "".join(f"{line}\n" for line in _lines(before, after))


def applied(before: Objects, change: str) -> Objects:
    """The objects after the change; raises StaleDifference."""
    found = dict(before)
    for section in _SECTION.split(change):
        head, *body = section.splitlines() or [""]
        verb, _, name = head.partition(": ")
        if verb and (verb == "added") == (name in before):
            raise StaleDifference(head)
        if verb == "removed":
            del found[name]
        elif verb == "added":
            found[name] = [line.removeprefix("| ") for line in body]
        elif verb == "changed":
            found[name] = _changed(before[name], body)
    return found


def _lines(before: Objects, after: Objects) -> Iterator[str]:
    yield from (f"removed: {name}" for name in before if name not in after)
    for name, lines in after.items():
        if name not in before:
            yield f"added: {name}"
            yield from (f"| {line}" for line in lines)
        elif lines != before[name]:
            yield f"changed: {name}"
            yield from _hunks(before[name], lines)


def _hunks(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    for tag, start, end, first, last in matcher.get_opcodes():
        if tag != "equal":
            changed = before[start] if start < end else after[first]
            yield f"@@ {start + 1} {'.'.join(_path(before[:start], changed))}".rstrip()
            yield from (f"-{line}" for line in before[start:end])
            yield from (f"+{line}" for line in after[first:last])


def _path(above: Sequence[str], line: str) -> list[str]:
    """The keys in which a line is, outermost first."""
    keys: list[str] = []
    indent = len(line) - len(line.lstrip())
    for other in reversed(above):
        outer = len(other) - len(other.lstrip())
        if outer < indent and not other.lstrip().startswith("#") and (key := _KEY.match(other)):
            indent = outer
            keys.insert(0, key[1])
    return keys


def _changed(before: Sequence[str], hunks: Sequence[str]) -> list[str]:
    found: list[str] = []
    done = 0  # lines of `before` that are copied, changed or left out
    for line in hunks:
        if line.startswith("@@ "):
            start = int(line.split()[1]) - 1
            found += before[done:start]
            done = start
        elif line.startswith("+"):
            found.append(line[1:])
        elif before[done : done + 1] == [line[1:]]:
            done += 1
        else:
            raise StaleDifference(line)
    return [*found, *before[done:]]

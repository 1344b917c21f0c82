"""What a request to the simulated API server means, and what a watch shows of a change. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from gpumanager.kube.errors import Object
from gpumanager.sim.cluster.objects import TYPES, Change, Key, StatusError

PARTS: Final = frozenset({"", "status", "binding"})


@dataclass(frozen=True, slots=True)
class Call:
    """One request, taken apart.

    name: empty for all of a resource. part: `status`, `binding` or nothing.
    """

    method: str
    resource: str
    namespace: str
    name: str
    part: str
    query: Mapping[str, str]
    kind: str
    body: bytes

    @property
    def key(self) -> Key:
        return Key(self.resource, self.namespace, self.name)

    def object(self) -> Any:
        """Return the body; raises StatusError."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError as error:
            raise StatusError(400, "BadRequest", f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise StatusError(400, "BadRequest", "the body is no object")
        return found


def read_call(method: str, target: str, kind: str, body: bytes) -> Call:
    """Parse a request; raises StatusError for a path that leads nowhere."""
    url = urlsplit(target)
    root, *words = [unquote(word) for word in url.path.strip("/").split("/")]
    length = 1 if root == "api" else 2  # v1, or policy/v1
    version, words = "/".join(words[:length]), words[length:]
    namespace = ""
    if words[:1] == ["namespaces"] and len(words) > 2:  # noqa: PLR2004
        namespace, words = words[1], words[2:]
    resource, name, part, *_ = [*words, "", "", ""]
    if root not in {"api", "apis"} or TYPES.get(resource, ("",))[0] != version or part not in PARTS:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    query = dict(parse_qsl(url.query))
    return Call(method, resource, namespace, name, part, query, kind.partition(";")[0], body)


def selector(query: Mapping[str, str]) -> Callable[[Object], bool]:
    """Return `fieldSelector` and `labelSelector` of a list or a watch as a test of objects.

    Of labels: `key=value` and `key`, which is there with any value.
    """
    fields = [term.partition("=") for term in query.get("fieldSelector", "").split(",") if term]
    labels = [term.partition("=") for term in query.get("labelSelector", "").split(",") if term]
    wanted = [(path.split("."), value.removeprefix("=")) for path, _, value in fields]

    def matches(item: Object) -> bool:
        for path, value in wanted:
            found: Any = item
            for name in path:
                found = (found or {}).get(name)
            if str(found or "") != value:
                return False
        there = item["metadata"].get("labels") or {}
        return all(
            key in there and (not equals or there[key] == value) for key, equals, value in labels
        )

    return matches


def watch_event(change: Change, wanted: Callable[[Object], bool]) -> Object | None:
    """Return the event for a watcher with a selector: ADDED for an object that comes to match,
    DELETED for one that ceases to."""
    was = change.before is not None and wanted(change.before)
    if change.after is not None and wanted(change.after):
        return {"type": "MODIFIED" if was else "ADDED", "object": change.after}
    if not was or change.before is None:
        return None
    metadata = {**change.before["metadata"], "resourceVersion": str(change.version)}
    return {"type": "DELETED", "object": {**change.before, "metadata": metadata}}


def bookmark(resource: str, version: int) -> Object:
    group, kind = TYPES[resource]
    metadata = {"resourceVersion": str(version)}
    item = {"kind": kind, "apiVersion": group, "metadata": metadata}
    return {"type": "BOOKMARK", "object": item}

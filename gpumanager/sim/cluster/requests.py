"""What a request to the simulated API server means. Pure."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from gpumanager.sim.cluster.objects import GROUPS, KINDS, Key, Object, StatusError

ROOT: Final = ("api", "v1")
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
    words = [unquote(word) for word in url.path.strip("/").split("/")]
    namespace, group = "", ""
    if words[0] == "apis":
        group, words = "/".join(words[1:3]), words[3:]
    elif tuple(words[:2]) == ROOT:
        words = words[2:]
    else:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    if words[:1] == ["namespaces"] and len(words) > 2:  # noqa: PLR2004
        namespace, words = words[1], words[2:]
    resource, name, part, *_ = [*words, "", "", ""]
    if resource not in KINDS or GROUPS.get(resource, "") != group or part not in PARTS:
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


def status_object(refused: StatusError) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(refused),
        "reason": refused.reason,
        "code": refused.status,
    }

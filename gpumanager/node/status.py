"""This node as the API server has it, and what has to be written for it to be true. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from gpumanager.names import LABEL_MEMORY, LABEL_PRODUCT

ONLY_WITH_GPUS: Final = (LABEL_PRODUCT, LABEL_MEMORY)
"""Labels of ours that go when the last GPU does."""
STATUS: Final = {True: "True", False: "False", None: "Unknown"}


class Condition(Protocol):
    """A node condition; status None is `Unknown`."""

    @property
    def type(self) -> str: ...
    @property
    def status(self) -> bool | None: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Node:
    """What of a node object concerns us. conditions: by type."""

    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_node(item: Any, types: Iterable[str]) -> Node:
    """A Node of its JSON object; only the conditions of these types are kept."""
    metadata, wanted = item.get("metadata") or {}, frozenset(types)
    conditions = (item.get("status") or {}).get("conditions") or ()
    return Node(
        uid=str(metadata.get("uid", "")),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        conditions={one["type"]: one for one in conditions if one.get("type") in wanted},
    )


def metadata_patch(
    node: Node, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any] | None:
    """The merge patch after which the node has these; None where it has."""
    gone = {key: None for key in ONLY_WITH_GPUS if key in node.labels and key not in labels}
    changed: dict[str, Any] = {
        "labels": {**_missing(node.labels, labels), **gone},
        "annotations": _missing(node.annotations, annotations),
    }
    changed = {name: fields for name, fields in changed.items() if fields}
    return {"metadata": changed} if changed else None


def _missing(has: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in wanted.items() if has.get(key) != text}


def status_patch(node: Node, conditions: Iterable[Condition], now: str) -> dict[str, Any] | None:
    """The strategic patch of its status after which the node has these; None where it has."""
    changed = [_written(one, node.conditions.get(one.type), now) for one in conditions]
    found = [one for one in changed if one]
    return {"status": {"conditions": found}} if found else None


def _written(wanted: Condition, has: Mapping[str, Any] | None, now: str) -> dict[str, Any] | None:
    new: dict[str, Any] = {
        "type": wanted.type,
        "status": STATUS[wanted.status],
        "reason": wanted.reason,
        "message": wanted.message,
    }
    if has and all(has.get(name) == text for name, text in new.items()):
        return None
    since = has.get("lastTransitionTime") if has and has.get("status") == new["status"] else None
    return {**new, "lastHeartbeatTime": now, "lastTransitionTime": since or now}

"""Keeps this node's labels, annotations and conditions as they should be.

What has to be written is the difference between the node as the API server has it and what should
be true; the functions that find it are pure.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpumanager.gpu.health.reports import NodeCondition
from gpumanager.kube.client import MERGE, STRATEGIC, KubeClient
from gpumanager.kube.events import timestamp
from gpumanager.kube.writer import Task, retry_on_conflict
from gpumanager.names import LABEL_MEMORY, LABEL_PRODUCT

READ_SECONDS: Final = 300.0
"""How often the node is read again: others write to it too."""
ONLY_WITH_GPUS: Final = (LABEL_PRODUCT, LABEL_MEMORY)
"""Labels of ours that go when the last GPU does."""
STATUS: Final = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The part of a node object that concerns us. conditions: by type."""

    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    conditions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_node(item: Any, types: Iterable[str]) -> NodeRecord:
    """Return the node of its JSON object; only the conditions of these types are kept."""
    metadata, wanted = item.get("metadata") or {}, frozenset(types)
    conditions = (item.get("status") or {}).get("conditions") or ()
    return NodeRecord(
        uid=str(metadata.get("uid", "")),
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        conditions={one["type"]: one for one in conditions if one.get("type") in wanted},
    )


def metadata_patch(
    node: NodeRecord, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any] | None:
    """Return the merge patch after which the node has these; None where it has."""
    gone = {key: None for key in ONLY_WITH_GPUS if key in node.labels and key not in labels}
    changed: dict[str, Any] = {
        "labels": {**_missing(node.labels, labels), **gone},
        "annotations": _missing(node.annotations, annotations),
    }
    changed = {name: fields for name, fields in changed.items() if fields}
    return {"metadata": changed} if changed else None


def _missing(has: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key, text in wanted.items() if has.get(key) != text}


def status_patch(
    node: NodeRecord, conditions: Iterable[NodeCondition], now: str
) -> dict[str, Any] | None:
    """Return the strategic patch of its status after which the node has these; None where it
    has."""
    changed: list[Mapping[str, Any]] = []
    for wanted in conditions:
        has = node.conditions.get(wanted.type, {})
        new = {
            "type": wanted.type,
            "status": STATUS[wanted.status],
            "reason": wanted.reason,
            "message": wanted.message,
        }
        if any(has.get(name) != text for name, text in new.items()):
            same = has.get("status") == new["status"]
            since = (has.get("lastTransitionTime") if same else None) or now
            changed.append({**new, "lastHeartbeatTime": now, "lastTransitionTime": since})
    return {"status": {"conditions": changed}} if changed else None


class NodeReconciler:
    """Compares the node with what it should say.

    changed: called when more is known of the node. elapsed: seconds, never back.
    """

    def __init__(
        self,
        api: KubeClient,
        name: str,
        *,
        changed: Callable[[], None],
        elapsed: Callable[[], float],
    ) -> None:
        self._changed = changed
        self._api = api
        self._name = name
        self._path = f"/api/v1/nodes/{name}"
        self._elapsed = elapsed
        self._node: NodeRecord | None = None
        self._types: frozenset[str] = frozenset()
        """Of which conditions the node was read."""
        self._read_at = 0.0
        self._conditions: dict[str, NodeCondition] = {}

    def condition(self, condition: NodeCondition) -> None:
        """Keep the node's condition of this type like this from now on."""
        self._conditions[condition.type] = condition

    def tasks(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[Task]:
        seen = self._types >= self._conditions.keys()
        if self._node is None or not seen or self._elapsed() - self._read_at >= READ_SECONDS:
            yield Task(("node", "read", len(self._conditions)), f"node {self._name}", self._read)
        if self._node is None:
            return
        if patch := metadata_patch(self._node, labels, annotations):
            yield self._task("labels", self._path, patch, MERGE)
        now = timestamp(time.time())
        if seen and (patch := status_patch(self._node, self._conditions.values(), now)):
            yield self._task("conditions", f"{self._path}/status", patch, STRATEGIC)

    def _task(self, what: str, path: str, patch: Mapping[str, Any], kind: str) -> Task:
        async def write() -> None:
            self._take(await retry_on_conflict(lambda: self._api.patch(path, patch, kind)))

        return Task(("node", what), f"{what} of node {self._name}", write)

    async def _read(self) -> None:
        self._take(await self._api.get(self._path))
        self._read_at = self._elapsed()
        self._changed()

    def _take(self, item: Any) -> None:
        self._types = frozenset(self._conditions)
        self._node = read_node(item, self._types)

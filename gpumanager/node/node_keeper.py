"""Keeps this node's labels, annotations and conditions as they should be."""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from gpumanager.kube.client import MERGE, STRATEGIC, KubeClient
from gpumanager.kube.events import timestamp
from gpumanager.kube.writer import Task, retry_on_conflict
from gpumanager.node.status import Condition, Node, metadata_patch, read_node, status_patch

READ_SECONDS: Final = 300.0
"""How often the node is read again: others write to it too."""


class NodeKeeper:
    """Compares the node with what it should say.

    changed: called when more is known of the node. clock: seconds since the epoch, which somebody
    may set. elapsed: seconds, never back.
    """

    def __init__(
        self,
        api: KubeClient,
        name: str,
        *,
        changed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed = changed
        self._api = api
        self._name = name
        self._path = f"/api/v1/nodes/{name}"
        self._clock = clock
        self._elapsed = elapsed
        self._node: Node | None = None
        self._types: frozenset[str] = frozenset()
        """Of which conditions the node was read."""
        self._read_at = 0.0
        self._conditions: dict[str, Condition] = {}

    def condition(self, condition: Condition) -> None:
        """It is this from now on."""
        self._conditions[condition.type] = condition

    def tasks(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Iterator[Task]:
        seen = self._types >= self._conditions.keys()
        if self._node is None or not seen or self._elapsed() - self._read_at >= READ_SECONDS:
            yield Task(("node", "read", len(self._conditions)), f"node {self._name}", self._read)
        if self._node is None:
            return
        if patch := metadata_patch(self._node, labels, annotations):
            yield self._task("labels", self._path, patch, MERGE)
        now = timestamp(self._clock())
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

"""Which kinds of nodes exist, by the inventories that agents publish; polled.

If the API server does not respond, the last known kinds stay. While none is known, no pod is
rejected for its size.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from gpumanager.gpu.inventory import read_inventory
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable
from gpumanager.names import ANNOTATION_INVENTORY
from gpumanager.scheduler.webhook.nodes import NodeKind

log = logging.getLogger(__name__)

NODES: Final = "/api/v1/nodes"
PERIOD: Final = 60.0
PAGE: Final = 500


class Lister(Protocol):
    """Of `gpumanager.kube.client.KubeClient`."""

    async def list(self, path: str, take: Callable[[Any], None], **query: object) -> Any: ...


class KnownNodes:
    """A handful of kinds, however many nodes there are."""

    def __init__(self, api: Lister) -> None:
        self._api = api
        self._kinds: frozenset[NodeKind] = frozenset()
        self._said = False

    def kinds(self) -> frozenset[NodeKind]:
        return self._kinds

    async def run(self) -> None:
        """For as long as the task lives."""
        while True:
            await self.look()
            await asyncio.sleep(PERIOD)

    async def look(self) -> None:
        try:
            self._kinds = await self._all()
        except (ApiRefused, ApiUnavailable, *NOT_UNDERSTOOD) as error:
            level = logging.DEBUG if self._said else logging.WARNING
            log.log(level, "not reading nodes: %s", error)
            self._said = True
            return
        self._said = False

    async def _all(self) -> frozenset[NodeKind]:
        found: set[NodeKind] = set()

        def take(node: Any) -> None:
            if kind := _kind(node):
                found.add(kind)

        token = ""
        while True:
            place = {"continue": token} if token else {}
            metadata = await self._api.list(NODES, take, limit=PAGE, **place)
            token = metadata.get("continue") or ""
            if not token:
                return frozenset(found)


def _kind(node: Any) -> NodeKind | None:
    """None for a node without GPUs, or whose agent says what is not understood here."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION_INVENTORY)
    try:
        return NodeKind.of(read_inventory(text)[0]) if text else None
    except (RecursionError, *NOT_UNDERSTOOD) as error:
        log.debug("node %s: %s", node["metadata"].get("name"), error)
        return None

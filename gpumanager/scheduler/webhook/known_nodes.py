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
        self._warned = False

    def kinds(self) -> frozenset[NodeKind]:
        return self._kinds

    async def run(self) -> None:
        """Refresh for as long as the task lives."""
        while True:
            await self.refresh()
            await asyncio.sleep(PERIOD)

    async def refresh(self) -> None:
        """List all nodes; log once that this fails."""
        found: set[NodeKind] = set()

        def take(node: Any) -> None:
            """Skip a node without GPUs, and one with an inventory that is not understood here."""
            text = (node["metadata"].get("annotations") or {}).get(ANNOTATION_INVENTORY)
            try:
                if text:
                    found.add(NodeKind.of(read_inventory(text)[0]))
            except (RecursionError, *NOT_UNDERSTOOD) as error:
                log.debug("node %s: %s", node["metadata"].get("name"), error)

        try:
            metadata = await self._api.list(NODES, take, limit=PAGE)
            while token := metadata.get("continue"):
                metadata = await self._api.list(NODES, take, limit=PAGE, **{"continue": token})
            self._kinds = frozenset(found)
            self._warned = False
        except (ApiRefused, ApiUnavailable, *NOT_UNDERSTOOD) as error:
            level = logging.DEBUG if self._warned else logging.WARNING
            log.log(level, "not reading nodes: %s", error)
            self._warned = True

"""How many GPUs of a node claims should have, as the node's annotation says.

Unscheduled pods are nothing that an agent should read: every node would follow those of the whole
cluster. What sees them (an operator, an autoscaler, the extender) writes the number it wants.
"""

import logging
from typing import Any

from gpumanager.names import ANNOTATION_CLAIMS_GPUS

log = logging.getLogger(__name__)


class ClaimsTarget:
    """Kept by an informer of one node. default: where the node says nothing, or no number."""

    path = "/api/v1/nodes"

    def __init__(self, node: str, default: int) -> None:
        self._node = node
        self._default = default
        self.gpus: int | None = None
        """None until the node has been read: nothing moves before."""

    def name(self, item: Any) -> str:
        return str(item["metadata"]["name"])

    def put(self, item: Any) -> None:
        text = (item["metadata"].get("annotations") or {}).get(ANNOTATION_CLAIMS_GPUS, "")
        if text.isascii() and text.isdecimal():
            self.gpus = int(text)
            return
        if text:
            log.warning(
                "annotation %s of this node is not a number: %.40r", ANNOTATION_CLAIMS_GPUS, text
            )
        self.gpus = self._default

    def remove(self, item: Any) -> None:
        del item

    def only(self, names: set[str]) -> None:
        """A node that is not there says nothing."""
        if self._node not in names:
            self.gpus = self._default

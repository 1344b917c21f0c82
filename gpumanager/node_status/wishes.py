"""What operators wish of a node's GPUs, as the node's annotations say.

    tencent.com/claims-gpus    how many GPUs claims should have, where both interfaces serve
    tencent.com/gpu-cordon     GPUs that get no new containers: UUIDs, or `*`

Unscheduled pods are nothing that an agent should read: every node would follow those of the whole
cluster. What sees them (an operator, an autoscaler, the extender) writes the number it wants.
"""

import logging
from collections.abc import Callable
from typing import Any

from gpumanager.names import ANNOTATION_CLAIMS_GPUS, ANNOTATION_CORDON

log = logging.getLogger(__name__)


class NodeWishes:
    """Kept by an informer of one node.

    claims_gpus: where the node says nothing, or no number. fixed: it holds whatever the node says.
    cordon: called with the text of the annotation, once it is read and when it changes.
    """

    path = "/api/v1/nodes"

    def __init__(
        self, node: str, claims_gpus: int, cordon: Callable[[str], None], *, fixed: bool = False
    ) -> None:
        self._node = node
        self._default = claims_gpus
        self._fixed = fixed
        self._cordon = cordon
        self._cordoned: str | None = None
        self.claims_gpus: int | None = claims_gpus if fixed else None
        """None until the node has been read: nothing moves before."""

    def name(self, item: Any) -> str:
        return str(item["metadata"]["name"])

    def put(self, item: Any) -> None:
        annotations = item["metadata"].get("annotations") or {}
        self._read(annotations.get(ANNOTATION_CLAIMS_GPUS, ""))
        self._set_cordon(annotations.get(ANNOTATION_CORDON, ""))

    def remove(self, item: Any) -> None:
        del item

    def only(self, names: set[str]) -> None:
        """Take a node that is not there as one without annotations."""
        if self._node not in names:
            self._read("")
            self._set_cordon("")

    def _read(self, text: str) -> None:
        if self._fixed:
            return
        number = text.isascii() and text.isdecimal()
        if text and not number:
            log.warning(
                "annotation %s of this node is not a number: %.40r", ANNOTATION_CLAIMS_GPUS, text
            )
        self.claims_gpus = int(text) if number else self._default

    def _set_cordon(self, text: str) -> None:
        if text != self._cordoned:
            self._cordoned = text
            self._cordon(text)

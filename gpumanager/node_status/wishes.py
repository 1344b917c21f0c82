"""What operators wish of a node's GPUs, as the node's annotations say.

    tencent.com/claims-gpus    how many GPUs claims should have, where both interfaces serve
    tencent.com/gpu-cordon     GPUs that get no new containers: UUIDs, or `*`

Unscheduled pods are nothing that an agent should read: every node would follow those of the whole
cluster. What sees them (an operator, an autoscaler, the extender) writes the number it wants.
"""

import logging
from collections.abc import Callable

from gpumanager.kube.errors import Object
from gpumanager.names import ANNOTATION_CLAIMS_GPUS, ANNOTATION_CORDON

log = logging.getLogger(__name__)


class NodeWishes:
    """default: of claims_gpus, where the node says nothing, or no number. fixed: it holds whatever
    the node says. cordon: called with the annotation, once it is read and when it changes."""

    def __init__(self, default: int, cordon: Callable[[str], None], *, fixed: bool = False) -> None:
        self._default, self._fixed, self._cordon = default, fixed, cordon
        self._read: tuple[str, str] | None = None
        self.claims_gpus: int | None = default if fixed else None
        """None until the node has been read: nothing moves before."""

    def read(self, node: Object | None) -> None:
        """Read a node; None, which is not there, wishes nothing."""
        annotations = node["metadata"].get("annotations") or {} if node else {}
        text, cordon = (annotations.get(k, "") for k in (ANNOTATION_CLAIMS_GPUS, ANNOTATION_CORDON))
        before, self._read = self._read, (text, cordon)
        if before is None or before[1] != cordon:
            self._cordon(cordon)
        if self._fixed or before == self._read:
            return
        number = text.isascii() and text.isdecimal()
        if text and not number:
            name = ANNOTATION_CLAIMS_GPUS
            log.warning("annotation %s of this node is not a number: %.40r", name, text)
        self.claims_gpus = int(text) if number else self._default

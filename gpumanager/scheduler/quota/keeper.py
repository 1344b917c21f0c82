"""Reads quotas from their ConfigMap: lists it once and then watches it.

Invalid content changes nothing: the last valid quotas stay, and the error is reported
(decision 0046).
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from gpumanager.kube.client import KubeClient
from gpumanager.kube.informer import Informer
from gpumanager.scheduler.quota.limits import Quotas, QuotaUnreadable, read_config_map
from gpumanager.scheduler.quota.rules import Known

log = logging.getLogger(__name__)

Tell = Callable[[str, Mapping[str, Any]], None]
"""Told what is wrong, and the metadata of the ConfigMap."""


class QuotaKeeper:
    """What the ConfigMap `namespace`/`name` says."""

    def __init__(
        self, api: KubeClient, namespace: str, name: str, *, tell: Tell = lambda *_: None
    ) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._informer = Informer(api, self, fields=f"metadata.name={name}")
        self._where = f"{namespace}/{name}"
        self._name = name
        self._tell = tell
        self._quotas: Quotas | None = None
        self._trouble = ""
        self._changes = 0

    def known(self) -> Known:
        """Now. Not read: the ConfigMap was neither found nor found missing yet."""
        read = self._quotas is not None or bool(self._trouble)
        return Known(self._quotas, self._trouble, read, self._changes)

    async def run(self) -> None:
        """For as long as the task lives."""
        await self._informer.run()

    def name(self, item: Any) -> str:
        return str(item["metadata"]["name"])

    def put(self, item: Any) -> None:
        """The ConfigMap is so now."""
        if self.name(item) != self._name:
            return
        try:
            self._take(read_config_map(item))
        except QuotaUnreadable as error:
            self._complain(str(error), item["metadata"])

    def remove(self, item: Any) -> None:
        """There is none any more."""
        if item["metadata"]["name"] == self._name:
            self._take({})

    def only(self, names: set[str]) -> None:
        """All there are were put."""
        if self._name not in names:
            self._take({})

    def _take(self, quotas: Quotas) -> None:
        if quotas != self._quotas:
            self._changes += 1
            log.info("read the GPU quotas of %d namespaces from %s", len(quotas), self._where)
        self._quotas, self._trouble = quotas, ""

    def _complain(self, trouble: str, metadata: Mapping[str, Any]) -> None:
        if trouble == self._trouble:
            return
        self._trouble = trouble
        kept = "" if self._quotas is None else "; the previous quotas stay in force"
        log.error("%s%s", trouble, kept)
        self._tell(trouble + kept, metadata)

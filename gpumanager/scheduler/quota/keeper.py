"""Reads quotas from their ConfigMap: lists it once and then watches it.

Invalid content changes nothing: the last valid quotas stay, and the error is reported
(decision 0046), also as a Kubernetes event on the ConfigMap.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.events import EventRecorder, ObjectReference
from gpumanager.kube.informer import Informer
from gpumanager.kube.writer import Writer
from gpumanager.scheduler.quota.limits import Quotas, QuotaUnreadable, read_config_map
from gpumanager.scheduler.quota.rules import Known

log = logging.getLogger(__name__)

REASON: Final = "QuotaNotUnderstood"
PERIOD: Final = 60.0

Report = Callable[[str, Mapping[str, Any]], None]
"""Called with what is wrong, and the metadata of the ConfigMap."""


class QuotaKeeper:
    """The quotas in the ConfigMap `namespace`/`name`."""

    def __init__(
        self, api: KubeClient, namespace: str, name: str, *, report: Report = lambda *_: None
    ) -> None:
        self.path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._informer = Informer(api, self, fields=f"metadata.name={name}")
        self._where = f"{namespace}/{name}"
        self._name = name
        self._report = report
        self._known = Known()

    def known(self) -> Known:
        """Return what is known now. Not read: the ConfigMap was neither found nor missing yet."""
        return self._known

    async def run(self) -> None:
        """Watch for as long as the task lives."""
        await self._informer.run()

    def name(self, item: Any) -> str:
        return str(item["metadata"]["name"])

    def put(self, item: Any) -> None:
        """Read the ConfigMap as it is now."""
        if self.name(item) != self._name:
            return
        try:
            self._take(read_config_map(item))
        except QuotaUnreadable as error:
            trouble = str(error)
            if trouble != self._known.trouble:
                self._known = replace(self._known, trouble=trouble)
                if self._known.quotas is not None:
                    trouble += "; the previous quotas stay in force"
                log.error("%s", trouble)  # noqa: TRY400 - the text has all
                self._report(trouble, item["metadata"])

    def remove(self, item: Any) -> None:
        """Drop all quotas: the ConfigMap was deleted."""
        if self.name(item) == self._name:
            self._take({})

    def only(self, names: set[str]) -> None:
        """Drop all quotas where the ConfigMap was not among all that were listed."""
        if self._name not in names:
            self._take({})

    def _take(self, quotas: Quotas) -> None:
        changes = self._known.changes
        if quotas != self._known.quotas:
            changes += 1
            log.info("read the GPU quotas of %d namespaces from %s", len(quotas), self._where)
        self._known = Known(quotas, changes=changes)


class QuotaEvents:
    """Events on the ConfigMap. identity: ours, as the host that reports."""

    def __init__(self, api: KubeClient, identity: str) -> None:
        self._events = EventRecorder(api, identity)
        self._wake = asyncio.Event()

    def record(self, trouble: str, metadata: Mapping[str, Any]) -> None:
        """Record what is wrong; returns at once. metadata: of the ConfigMap."""
        names = (str(metadata.get(key) or "") for key in ("name", "uid", "namespace"))
        about = ObjectReference("ConfigMap", *names)
        self._events.record(None, warning=True, reason=REASON, message=trouble, about=about)
        self._wake.set()

    async def run(self) -> None:
        """Write events for as long as the task lives."""
        await Writer().run(self._events.tasks, self._wake, PERIOD)

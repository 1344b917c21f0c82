"""Reports an invalid quota ConfigMap, as a Kubernetes event on it."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.events import EventRecorder, ObjectReference
from gpumanager.kube.writer import Writer

REASON: Final = "QuotaNotUnderstood"
PERIOD: Final = 60.0


class QuotaEvents:
    """identity: ours, as the host that says so."""

    def __init__(self, api: KubeClient, identity: str) -> None:
        self._events = EventRecorder(api, identity)
        self._wake = asyncio.Event()

    def tell(self, trouble: str, metadata: Mapping[str, Any]) -> None:
        """metadata: of the ConfigMap. Returns at once."""
        names = (str(metadata.get(key) or "") for key in ("name", "uid", "namespace"))
        about = ObjectReference("ConfigMap", *names)
        self._events.record(None, warning=True, reason=REASON, message=trouble, about=about)
        self._wake.set()

    async def run(self) -> None:
        """For as long as the task lives."""
        await Writer().run(self._events.tasks, self._wake, PERIOD)

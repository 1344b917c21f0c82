"""Says on the ConfigMap of the quotas that it is not understood, as a Kubernetes event."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from gpumanager.cluster.api import ApiServer
from gpumanager.cluster.events import Subject
from gpumanager.cluster.notices import Notices
from gpumanager.cluster.pods import PodStore
from gpumanager.cluster.writer import Writer

REASON: Final = "QuotaNotUnderstood"
PERIOD: Final = 60.0


class QuotaEvents:
    """identity: ours, as the host that says so."""

    def __init__(self, api: ApiServer, identity: str) -> None:
        self._notices = Notices(api, identity, PodStore())
        self._wake = asyncio.Event()

    def tell(self, trouble: str, metadata: Mapping[str, Any]) -> None:
        """metadata: of the ConfigMap. Returns at once."""
        names = (str(metadata.get(key) or "") for key in ("name", "uid", "namespace"))
        about = Subject("ConfigMap", *names)
        self._notices.say(None, warning=True, reason=REASON, message=trouble, subject=about)
        self._wake.set()

    async def run(self) -> None:
        """For as long as the task lives."""
        await Writer().run(self._notices.tasks, self._wake, PERIOD)

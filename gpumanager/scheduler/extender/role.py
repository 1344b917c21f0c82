"""Labels this replica's pod `leader` or `standby`, for the Service that kube-scheduler calls.

All replicas are ready, since all know the cluster. A Service that selects the label sends requests
only to the leader. A standby that still gets one answers it, but refuses to bind.
"""

import asyncio
import logging
from typing import Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable
from gpumanager.names import LABEL_ROLE

log = logging.getLogger(__name__)

ROLES: Final = {True: "leader", False: "standby"}
AGAIN_SECONDS: Final = 2.0


class RoleLabel:
    """Keeps the label of one pod as it should be."""

    def __init__(
        self, api: KubeClient, namespace: str, pod: str, *, again: float = AGAIN_SECONDS
    ) -> None:
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
        self._wanted = ROLES[False]
        self._changed = asyncio.Event()
        self._changed.set()
        self._again = again

    def leads(self, leads: bool) -> None:  # noqa: FBT001
        """Take note that this replica leads, or no longer does."""
        self._wanted = ROLES[leads]
        self._changed.set()

    async def run(self) -> None:
        """Write the label for as long as the task lives."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            labels = {LABEL_ROLE: self._wanted}
            try:
                await self._api.patch(self._path, {"metadata": {"labels": labels}})
            except (ApiRefused, ApiUnavailable, *NOT_UNDERSTOOD) as error:
                log.warning("cannot write the label %s of this pod: %s", LABEL_ROLE, error)
                self._changed.set()
                await asyncio.sleep(self._again)

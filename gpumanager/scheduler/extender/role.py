"""Labels this replica's pod `leader` or `standby`, for the Service that kube-scheduler calls.

All replicas are ready, since all know the cluster. A Service that selects the label sends requests
only to the leader. A standby that still gets one answers it, but refuses to bind.
"""

import asyncio
import logging
from typing import Final

from gpumanager.kube.client import KubeClient
from gpumanager.kube.errors import NOT_UNDERSTOOD, ApiRefused, ApiUnavailable
from gpumanager.kube.lease import LeaderElection
from gpumanager.names import LABEL_ROLE
from gpumanager.scheduler.extender.bind import NoElection

log = logging.getLogger(__name__)

PERIOD: Final = 0.5
AGAIN_SECONDS: Final = 2.0


async def label_role(
    api: KubeClient, namespace: str, pod: str, election: LeaderElection | NoElection
) -> None:
    """Write the label whenever leadership has changed, for as long as the task lives."""
    written = ""
    while True:
        pause, role = PERIOD, "leader" if election.leads else "standby"
        if role != written:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}"
            try:
                await api.patch(path, {"metadata": {"labels": {LABEL_ROLE: role}}})
                written = role
            except (ApiRefused, ApiUnavailable, *NOT_UNDERSTOOD) as error:
                log.warning("cannot write the label %s of this pod: %s", LABEL_ROLE, error)
                pause = AGAIN_SECONDS
        await asyncio.sleep(pause)

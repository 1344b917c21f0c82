"""Joins the agent to its cluster, or lets it live without one."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from gpumanager.gpu.health.reports import NodeCondition, NodeEvent
from gpumanager.gpu.values import Gpu
from gpumanager.grants.grant import Claimant
from gpumanager.ids import PodUID
from gpumanager.kube.access import NoAccess, find_access, node_name
from gpumanager.kube.client import KubeClient
from gpumanager.node_status.service import Facts, NodeCluster

log = logging.getLogger(__name__)


class Standalone:
    """A node without an API server: events and conditions go to the log alone."""

    def condition(self, condition: NodeCondition) -> None:
        log.debug("%s=%s: %s", condition.type, condition.status, condition.message)

    def event(self, event: NodeEvent) -> None:
        log.debug("%s: %s", event.reason, event.message)

    def pod_event(self, pod: PodUID, event: NodeEvent) -> None:
        log.debug("%s: %s: %s", pod, event.reason, event.message)

    def correct(self, pod: Claimant, gpus: tuple[Gpu, ...]) -> None:
        """There are no annotations."""

    def pod_name(self, _: PodUID) -> str | None:
        """Return None: pods are not known by name."""
        return None

    def terminating(self, _: PodUID) -> bool:
        """Return False: without an API server it is not known."""
        return False

    async def run(self, _: Callable[[], Facts]) -> None:
        """There is no API server."""


Cluster = NodeCluster | Standalone


def join(
    kubeconfig: Path | None,
    hostname: str | None,
    labels: Mapping[str, str],
    *,
    recycle: bool = True,
) -> Cluster:
    """Return this node's cluster; log it once where there is no API server. Raises InputError."""
    try:
        access = find_access(kubeconfig)
    except NoAccess as error:
        log.info("%s: not writing labels, annotations or events", error)
        return Standalone()
    node = node_name(hostname)
    log.info("this is node %s at %s", node, access)
    return NodeCluster(KubeClient(access), node, labels=labels, recycle=recycle)

"""Joins the agent to its cluster, or lets it live without one."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from gpumanager.cluster.access import NoAccess, find_access, node_name
from gpumanager.cluster.api import ApiServer
from gpumanager.cluster.labels import parse_node_labels
from gpumanager.cluster.service import Facts, NodeCluster
from gpumanager.kubelet.pods import PodsSource, PodsUnavailable, PodView

log = logging.getLogger(__name__)

PATIENCE: Final = 3
"""So many refusals of the kubelet in a row, and the API server is asked instead."""


def join(
    kubeconfig: Path | None, hostname: str | None, labels: str = "", *, recycle: bool = True
) -> NodeCluster | None:
    """None, after one line in the log, where there is no API server. Raises InputError."""
    try:
        access = find_access(kubeconfig)
    except NoAccess as error:
        log.info("%s: no labels, annotations and events are written", error)
        return None
    node = node_name(hostname)
    log.info("this is node %s at %s", node, access)
    return NodeCluster(ApiServer(access), node, labels=parse_node_labels(labels), recycle=recycle)


class PodsOfEither:
    """The kubelet's pods; the API server's where the kubelet has refused some times in a row.

    Not at once: who is being admitted is read from the difference of two lists of one source.
    """

    def __init__(self, kubelet: PodsSource, watch: PodsSource) -> None:
        self._kubelet = kubelet
        self._watch = watch
        self._refused = 0

    async def pods(self) -> tuple[PodView, ...]:
        """Raises PodsUnavailable, with the kubelet's reason."""
        try:
            found = await self._kubelet.pods()
        except PodsUnavailable:
            self._refused += 1
            if self._refused < PATIENCE:
                raise
            return await self._watch.pods()
        self._refused = 0
        return found


async def run(cluster: NodeCluster | None, facts: Callable[[], Facts]) -> None:
    """`cluster.run`, or nothing."""
    if cluster is not None:
        await cluster.run(facts)

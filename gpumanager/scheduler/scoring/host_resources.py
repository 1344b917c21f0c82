"""What a pod requests of its node's CPU and memory, counted as in Kubernetes. Pure.

kube-scheduler decides whether that fits. Here it only changes scores, because a GPU is useless if
its node has no CPU left. So an amount that cannot be read counts as zero.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpumanager.ids import PodUID
from gpumanager.kube.pod import LARGEST_AMOUNT


@dataclass(frozen=True, slots=True)
class HostResources:
    """CPU and memory of a node, or of those who use it."""

    cpu_milli: int = 0
    memory_mib: int = 0

    def __add__(self, other: "HostResources") -> "HostResources":
        return HostResources(self.cpu_milli + other.cpu_milli, self.memory_mib + other.memory_mib)

    def __sub__(self, other: "HostResources") -> "HostResources":
        return HostResources(self.cpu_milli - other.cpu_milli, self.memory_mib - other.memory_mib)


NO_RESOURCES: Final = HostResources()
BOUNDLESS: Final = HostResources(LARGEST_AMOUNT, LARGEST_AMOUNT)
"""Of a node that does not say what it has."""


class HostUsage:
    """What pods without GPUs take of their nodes: by UID, and a sum for each node. One more or less
    costs constant time."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, tuple[str, HostResources]] = {}
        self._nodes: dict[str, HostResources] = {}

    def on(self, node: str) -> HostResources:
        return self._nodes.get(node, NO_RESOURCES)

    def put(self, uid: PodUID, node: str, host: HostResources) -> Iterable[str]:
        """Count so much on this node; return the nodes on which that changes something."""
        if self._pods.get(uid) == (node, host):
            return ()
        before = self.gone(uid)
        if host == NO_RESOURCES:
            return before
        self._pods[uid] = node, host
        self._nodes[node] = self.on(node) + host
        return {*before, node}

    def gone(self, uid: PodUID) -> Iterable[str]:
        """Count it no longer; return the node on which it was."""
        node, host = self._pods.pop(uid, ("", NO_RESOURCES))
        left = self._nodes.pop(node, NO_RESOURCES) - host
        if left != NO_RESOURCES:
            self._nodes[node] = left
        return (node,) if node else ()

    def all(self) -> Iterable[PodUID]:
        return self._pods.keys()

"""What pods without GPUs take of their nodes' CPU and memory: two numbers for each, and a sum."""

from collections.abc import Iterable

from gpumanager.kube.pod import PodUID
from gpumanager.scheduler.scoring.host_resources import NOTHING, HostResources


class HostUsage:
    """Pods by UID, sums by node. One more or less costs constant time."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, tuple[str, HostResources]] = {}
        self._nodes: dict[str, HostResources] = {}

    def on(self, node: str) -> HostResources:
        return self._nodes.get(node, NOTHING)

    def put(self, uid: PodUID, node: str, host: HostResources) -> Iterable[str]:
        """So much on this node; returns the nodes on which that changes something."""
        known = self._pods.get(uid)
        if known == (node, host):
            return ()
        changed = set(self.gone(uid))
        if host != NOTHING:
            self._pods[uid] = node, host
            self._nodes[node] = self.on(node) + host
            changed.add(node)
        return changed

    def gone(self, uid: PodUID) -> Iterable[str]:
        """Nothing any more; returns the node on which that was."""
        known = self._pods.pop(uid, None)
        if known is None:
            return ()
        node, host = known
        left = self.on(node) - host
        if left == NOTHING:
            self._nodes.pop(node, None)
        else:
            self._nodes[node] = left
        return (node,)

    def all(self) -> Iterable[PodUID]:
        return self._pods.keys()

    def __len__(self) -> int:
        return len(self._pods)

"""What informers update: nodes and pods in the extender's state."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpumanager.ids import PodUID
from gpumanager.kube.informer import ObjectStore
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.scheduler.node import NodeSaid, read_node
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.state import ClusterState


class PodWatch:
    """Pods: of those with GPUs all that matters, of others what they take of their node.

    A pod's owner may write its annotations at any time, so they never decide whether it counts: one
    whose annotations are not understood counts with what its spec asks for (decision 0097).
    claimed: what the claims of a pod ask for.
    """

    path = "/api/v1/pods"

    def __init__(
        self,
        state: ClusterState,
        claimed: Callable[[PodView], PodShape | None] = lambda _: None,
    ) -> None:
        self._state = state
        self._claimed = claimed

    def name(self, item: Any) -> str:
        return str(item["metadata"]["uid"])

    def put(self, item: Any) -> None:
        pod = read_pod(item)
        node = str((item.get("spec") or {}).get("nodeName") or "")
        try:
            self._state.pod(pod, node)
        except Exception:
            self._state.pod(replace(pod, annotations={}), node)
            raise  # to be logged, and counted
        if pod.claims and not pod.ended and (ask := self._claimed(pod)):
            self._state.learn(pod, ask)

    def remove(self, item: Any) -> None:
        self._state.pod_gone(PodUID(item["metadata"]["uid"]))

    def only(self, names: set[str]) -> None:
        self._state.only_pods(PodUID(name) for name in names)


def node_store(state: ClusterState) -> ObjectStore[NodeSaid]:
    """Return the store of nodes, by what their agents publish."""
    return ObjectStore("/api/v1/nodes", read_node, state.node_changed)

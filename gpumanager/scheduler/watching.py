"""What informers of nodes and pods keep for the extender: all of it goes into the state."""

from dataclasses import replace
from typing import Any

from gpumanager.kube.pod import PodUID, read_pod
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.state import ClusterState


class NodeWatch:
    """Nodes, by what their agents publish."""

    path = "/api/v1/nodes"

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def name(self, item: Any) -> str:
        return str(item["metadata"]["name"])

    def put(self, item: Any) -> None:
        self._state.node(read_node(item))

    def remove(self, item: Any) -> None:
        self._state.node_gone(str(item["metadata"]["name"]))

    def only(self, names: set[str]) -> None:
        self._state.only_nodes(names)


class PodWatch:
    """Pods: of those with GPUs all that matters, of others what they take of their node.

    A pod's owner may write its annotations at any time, so they never decide whether it counts: one
    whose annotations are not understood counts with what its spec asks for (decision 0097).
    """

    path = "/api/v1/pods"

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def name(self, item: Any) -> str:
        return str(item["metadata"]["uid"])

    def put(self, item: Any) -> None:
        pod = read_pod(item)
        node = str((item.get("spec") or {}).get("nodeName") or "")
        try:
            self._state.pod(pod, node)
        except Exception:
            self._state.pod(replace(pod, annotations={}), node)
            raise  # to be said, and counted

    def remove(self, item: Any) -> None:
        self._state.pod_gone(PodUID(item["metadata"]["uid"]))

    def only(self, names: set[str]) -> None:
        self._state.only_pods(PodUID(name) for name in names)

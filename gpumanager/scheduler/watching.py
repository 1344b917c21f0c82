"""What informers update for the extender: nodes and pods in the state, and disruption budgets."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.scheduler.node import read_node
from gpumanager.scheduler.scoring.pod_shape import PodShape
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


class DisruptionBudgets:
    """In which namespaces a PodDisruptionBudget protects pods.

    Which pods a budget counts, and how many may go, is decided at eviction. Here it is enough to
    know where no pod is protected.
    """

    path = "/apis/policy/v1/poddisruptionbudgets"

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._namespaces: Counter[str] = Counter()

    def protects(self, namespace: str) -> bool:
        """Return whether any pod there may be protected."""
        return self._namespaces[namespace] > 0

    def name(self, item: Any) -> str:
        return f"{item['metadata']['namespace']}/{item['metadata']['name']}"

    def put(self, item: Any) -> None:
        namespace, key = str(item["metadata"]["namespace"]), self.name(item)
        if key not in self._known:
            self._known[key] = namespace
            self._namespaces[namespace] += 1

    def remove(self, item: Any) -> None:
        self._forget(self.name(item))

    def only(self, names: set[str]) -> None:
        for key in self._known.keys() - names:
            self._forget(key)

    def _forget(self, key: str) -> None:
        namespace = self._known.pop(key, None)
        if namespace is not None:
            self._namespaces[namespace] -= 1

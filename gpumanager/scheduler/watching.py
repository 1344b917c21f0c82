"""What informers update: nodes and pods in the extender's state, and objects of other kinds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
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


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """What `read` returns of each object of one kind, by namespace/name; nothing for None. changed:
    gets the name, and what was known before and is after a change."""

    path: str
    read: Callable[[Any], Any]
    changed: Callable[[str, Any, Any], None] = lambda _name, _before, _after: None
    known: dict[str, Any] = field(default_factory=dict)

    def name(self, item: Any) -> str:
        metadata = item["metadata"]
        return f"{metadata.get('namespace', '')}/{metadata['name']}"

    def put(self, item: Any) -> None:
        self._become(self.name(item), self.read(item))

    def remove(self, item: Any) -> None:
        self._become(self.name(item), None)

    def only(self, names: set[str]) -> None:
        for name in self.known.keys() - names:
            self._become(name, None)

    def _become(self, name: str, after: Any) -> None:
        before = self.known.pop(name, None)
        if after is not None:
            self.known[name] = after
        self.changed(name, before, after)


def namespace_of(item: Any) -> str:
    return str(item["metadata"]["namespace"])

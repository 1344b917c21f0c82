"""The pods of this node, as the API server has them.

A static pod is the kubelet's own: what the API server shows is a mirror with a UID of its own. Here
pods go by the kubelet's UID, which the mirror carries in an annotation.
"""

from collections.abc import Callable
from typing import Any

from gpumanager.ids import PodUID
from gpumanager.kube.events import ObjectReference
from gpumanager.kube.pod import PodView, read_pod
from gpumanager.node_status.other_managers import foreign_resources


class NodePods:
    """Kept by an informer. changed: called after each change."""

    path = "/api/v1/pods"

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._pods: dict[PodUID, PodView] = {}
        self._changed = changed
        self.foreign: dict[str, tuple[str, ...]] = {}
        """Pods that have GPUs of other managers, by namespace and name, and their resources."""

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: PodUID) -> PodView | None:
        return self._pods.get(uid)

    def all(self) -> tuple[PodView, ...]:
        return tuple(self._pods.values())

    def reference(self, uid: PodUID) -> ObjectReference | None:
        """Return the reference for an event about it; None while it is not known."""
        pod = self._pods.get(uid)
        return None if pod is None else reference(pod)

    def name(self, item: Any) -> str:
        return str(item["metadata"]["uid"])

    def put(self, item: Any) -> None:
        """Add a pod; a mirror that was made anew replaces the one before."""
        pod = read_pod(item)
        self._pods[pod.kubelet_uid] = pod
        self.foreign.pop(pod.full_name, None)
        if found := foreign_resources(item):
            self.foreign[pod.full_name] = found
        self._changed()

    def remove(self, item: Any) -> None:
        """Remove a pod, unless another mirror of the same static pod has replaced it."""
        pod = read_pod(item)
        known = self._pods.get(pod.kubelet_uid)
        if known is not None and known.uid == pod.uid:
            del self._pods[pod.kubelet_uid]
            self.foreign.pop(pod.full_name, None)
        self._changed()

    def only(self, names: set[str]) -> None:
        self._pods = {uid: pod for uid, pod in self._pods.items() if pod.uid in names}
        known = {pod.full_name for pod in self._pods.values()}
        self.foreign = {name: held for name, held in self.foreign.items() if name in known}
        self._changed()


def reference(pod: PodView) -> ObjectReference:
    """Return it with the kubelet's UID, by which `kubectl describe` finds a static pod's events."""
    return ObjectReference("Pod", pod.name, pod.kubelet_uid, pod.namespace)


def path_of(pod: PodView) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"

"""Pods as the API server has them, and the mirror of this node's that the watch keeps.

A static pod is the kubelet's own: what the API server shows is a mirror with a UID of its own. We
know pods by the kubelet's UID, which the mirror carries in an annotation.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from gpumanager.kubelet.pods import PodUID, PodView, read_pod

CONFIG_HASH: Final = "kubernetes.io/config.hash"
CONFIG_MIRROR: Final = "kubernetes.io/config.mirror"
STATUSES: Final = ("initContainerStatuses", "containerStatuses")


@dataclass(frozen=True, slots=True)
class ClusterPod:
    """A pod of this node.

    view: as the kubelet would list it, with the kubelet's UID. uid: the API server's.
    owners: kinds of its owners. apps: names of its containers, without init containers.
    static: the kubelet's own. reason, message: of its status. waiting: why its containers wait,
    each as reason and message.
    """

    view: PodView
    uid: str
    version: str = ""
    owners: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    priority: int = 0
    static: bool = False
    reason: str = ""
    message: str = ""
    waiting: tuple[tuple[str, str], ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.view.namespace}/{self.view.name}"


class NotAPod(ValueError):
    """An object of the API server that cannot be read as a pod."""


def cluster_pod(item: Any) -> ClusterPod:
    """Raises NotAPod."""
    try:
        return _pod(item)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise NotAPod(f"not a pod ({error!r})") from error


def _pod(item: Any) -> ClusterPod:
    metadata, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    annotations = metadata.get("annotations") or {}
    view = read_pod(item)
    static = CONFIG_MIRROR in annotations
    kubelets = annotations.get(CONFIG_HASH) if static else None
    return ClusterPod(
        view=replace(view, uid=PodUID(kubelets or view.uid)),
        uid=view.uid,
        version=metadata.get("resourceVersion", ""),
        owners=tuple(owner["kind"] for owner in metadata.get("ownerReferences") or ()),
        apps=tuple(container["name"] for container in spec.get("containers") or ()),
        priority=int(spec.get("priority") or 0),
        static=static,
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        waiting=tuple(_waiting(status)),
    )


def _waiting(status: Any) -> Iterator[tuple[str, str]]:
    for kind in STATUSES:
        for container in status.get(kind) or ():
            state = (container.get("state") or {}).get("waiting")
            if state:
                yield state.get("reason", ""), state.get("message", "")


class PodStore:
    """The pods that are there, by the kubelet's UID."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, ClusterPod] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def get(self, uid: PodUID) -> ClusterPod | None:
        return self._pods.get(uid)

    def all(self) -> tuple[ClusterPod, ...]:
        return tuple(self._pods.values())

    def replace(self, pods: Iterable[ClusterPod]) -> None:
        """These, and no others."""
        self._pods = {pod.view.uid: pod for pod in pods}

    def put(self, pod: ClusterPod) -> None:
        """It is so now. A mirror that was made anew takes the place of the one before."""
        self._pods[pod.view.uid] = pod

    def remove(self, pod: ClusterPod) -> None:
        """It is gone, unless another mirror of the same static pod stands there by now."""
        known = self._pods.get(pod.view.uid)
        if known is not None and known.uid == pod.uid:
            del self._pods[pod.view.uid]

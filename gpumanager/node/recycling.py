"""Which pods are deleted so that whoever owns them makes them anew. Pure.

The original's rule: a pod that this node failed to admit, and that somebody owns. A kubelet never
takes such a pod back; what stays is its corpse, or, where a container cannot be told apart any more
after the agent lost its books, a container that waits for ever. Ours alone: the pod asks for our
resources, and the words are about them. Never what nobody would make again, never what the node
itself depends on.
"""

from collections.abc import Iterable
from typing import Final

from gpumanager.kube.pod import PodUID, PodView
from gpumanager.names import VCORE, VMEMORY

ADMISSION_FAILED: Final = "UnexpectedAdmissionError"
CRITICAL: Final = 2_000_000_000
"""The priority from which Kubernetes itself calls a pod critical."""
HOPELESS: Final = "no record of answering"
"""What PreStartContainer says of a container that no attempt can save."""
HOPELESS_SECONDS: Final = 60.0
PLUGIN_ANSWERED: Final = "rpc error"
"""The kubelet quotes the plugin behind this."""


def refused_here(pod: PodView) -> bool:
    """True if the kubelet did not admit it for the sake of our resources."""
    if pod.phase != "Failed" or pod.status.reason != ADMISSION_FAILED or not pod.asks:
        return False
    return any(word in pod.status.message for word in (VCORE, VMEMORY, PLUGIN_ANSWERED))


def hopeless(pod: PodView) -> bool:
    """True if a container of it waits for what cannot come."""
    return not pod.ended and pod.asks and any(HOPELESS in said for _, said in pod.status.waiting)


def replaceable(pod: PodView) -> bool:
    """True if somebody makes it anew, and nothing is lost but the pod."""
    owned = bool(pod.status.owners) and not {"Pod", "Node"} & set(pod.status.owners)
    return owned and not pod.status.static and not pod.terminating and pod.priority < CRITICAL


def recyclable(
    pods: Iterable[PodView], waiting_since: dict[PodUID, float], now: float
) -> tuple[PodView, ...]:
    """Those to delete now. waiting_since: kept by the caller; since when each has been hopeless."""
    candidates = [pod for pod in pods if replaceable(pod)]
    lost = {pod.kubelet_uid for pod in candidates if hopeless(pod)}
    since = {uid: waiting_since.get(uid, now) for uid in lost}
    waiting_since.clear()
    waiting_since.update(since)
    return tuple(
        pod
        for pod in candidates
        if refused_here(pod) or now - since.get(pod.kubelet_uid, now) >= HOPELESS_SECONDS
    )

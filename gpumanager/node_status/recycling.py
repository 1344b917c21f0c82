"""Which pods are deleted so that their owners (a ReplicaSet, a Job) create new ones. Pure.

gpu-manager's rule: a pod that this node failed to admit, and that has an owner. A kubelet never
admits such a pod again: it stays `Failed`. Another case: after the agent lost its journal, a
container that can no longer be identified waits in PreStartContainer forever. Only pods that ask
for our resources and failed because of them are deleted; never static or critical pods.
"""

from collections.abc import Iterable
from typing import Final

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView
from gpumanager.names import VCORE, VMEMORY

ADMISSION_FAILED: Final = "UnexpectedAdmissionError"
CRITICAL: Final = 2_000_000_000
"""The priority from which Kubernetes itself calls a pod critical."""
HOPELESS: Final = "no record of answering"
"""In PreStartContainer's error for a container that no retry can save."""
HOPELESS_SECONDS: Final = 60.0
PLUGIN_ANSWERED: Final = "rpc error"
"""The kubelet quotes the plugin behind this."""


def refused_here(pod: PodView) -> bool:
    """Return True if the kubelet did not admit it for the sake of our resources."""
    if pod.phase != "Failed" or pod.status.reason != ADMISSION_FAILED or not pod.asks:
        return False
    return any(word in pod.status.message for word in (VCORE, VMEMORY, PLUGIN_ANSWERED))


def hopeless(pod: PodView) -> bool:
    """Return True if a container of it waits for what cannot come."""
    return not pod.ended and pod.asks and any(HOPELESS in said for _, said in pod.status.waiting)


def replaceable(pod: PodView) -> bool:
    """Return True if its owner creates a new one, and nothing is lost but the pod."""
    owned = bool(pod.status.owners) and not {"Pod", "Node"} & set(pod.status.owners)
    return owned and not pod.status.static and not pod.terminating and pod.priority < CRITICAL


def recyclable(
    pods: Iterable[PodView], waiting_since: dict[PodUID, float], now: float
) -> tuple[PodView, ...]:
    """Return those to delete now. waiting_since: kept by the caller; since when each has been
    hopeless."""
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

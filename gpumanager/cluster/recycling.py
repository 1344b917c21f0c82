"""Which pods are deleted so that whoever owns them makes them anew. Pure.

The original's rule: a pod that this node failed to admit, and that somebody owns. A kubelet never
takes such a pod back; what stays is its corpse, or, where a container cannot be told apart any more
after the agent lost its books, a container that waits for ever. Ours alone: the pod asks for our
resources, and the words are about them. Never what nobody would make again, never what the node
itself depends on.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from gpumanager.cluster.pods import ClusterPod
from gpumanager.kubelet.pods import PodUID
from gpumanager.names import VCORE, VMEMORY

ADMISSION_FAILED: Final = "UnexpectedAdmissionError"
CRITICAL: Final = 2_000_000_000
"""The priority from which Kubernetes itself calls a pod critical."""
HOPELESS: Final = "no record of answering"
"""What PreStartContainer says of a container that no attempt can save."""
HOPELESS_SECONDS: Final = 60.0
PLUGIN_ANSWERED: Final = "rpc error"
"""The kubelet quotes the plugin behind this."""


@dataclass(frozen=True, slots=True)
class Budget:
    """At most `burst` at once and one each `seconds` after that. spent: of the burst, at `at`."""

    burst: int = 5
    seconds: float = 10.0
    spent: float = 0.0
    at: float = 0.0

    def take(self, now: float) -> "Budget | None":
        """After one more; None if it has to wait."""
        spent = max(0.0, self.spent - (now - self.at) / self.seconds)
        if spent + 1 > self.burst:
            return None
        return Budget(self.burst, self.seconds, spent + 1, now)


def refused_here(pod: ClusterPod) -> bool:
    """True if the kubelet did not admit it for the sake of our resources."""
    if pod.view.phase != "Failed" or pod.reason != ADMISSION_FAILED or not _asks(pod):
        return False
    return any(word in pod.message for word in (VCORE, VMEMORY, PLUGIN_ANSWERED))


def hopeless(pod: ClusterPod) -> bool:
    """True if a container of it waits for what cannot come."""
    return not pod.view.ended and _asks(pod) and any(HOPELESS in said for _, said in pod.waiting)


def replaceable(pod: ClusterPod) -> bool:
    """True if somebody makes it anew, and nothing is lost but the pod."""
    owned = bool(pod.owners) and not {"Pod", "Node"} & set(pod.owners)
    return owned and not pod.static and not pod.view.terminating and pod.priority < CRITICAL


def recyclable(
    pods: Iterable[ClusterPod], waiting_since: dict[PodUID, float], now: float
) -> tuple[ClusterPod, ...]:
    """Those to delete now. waiting_since: kept by the caller; since when each has been hopeless."""
    candidates = [pod for pod in pods if replaceable(pod)]
    lost = {pod.view.uid for pod in candidates if hopeless(pod)}
    since = {uid: waiting_since.get(uid, now) for uid in lost}
    waiting_since.clear()
    waiting_since.update(since)
    return tuple(
        pod
        for pod in candidates
        if refused_here(pod) or now - since.get(pod.view.uid, now) >= HOPELESS_SECONDS
    )


def _asks(pod: ClusterPod) -> bool:
    return any(one.cores != 0 or one.blocks != 0 for one in pod.view.containers)

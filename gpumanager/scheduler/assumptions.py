"""Assumed pods: binds that the watch has not confirmed yet, by pod and node. Pure.

A pod may be assumed on several nodes at once: after a bind with unknown outcome it may be bound to
another node, and the first bind may still succeed. An assumption ends when the watch shows the pod,
when it is withdrawn, or when it expires.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import PodUID
from gpumanager.scheduler.node import Holder
from gpumanager.scheduler.scoring.packing import Packing


@dataclass(frozen=True, slots=True)
class Assumed:
    """What a pod holds by our decision. gpus: of each container, whatever becomes of the node that
    lists them. until: seconds, any clock."""

    holder: Holder
    gpus: tuple[frozenset[GpuUUID], ...]
    until: float

    @property
    def packing(self) -> Packing | None:
        """Return where its containers go; None where one of the GPUs is not there now."""
        found = self.holder.packing
        whole = found and [len(held) for held in found.gpus] == [len(held) for held in self.gpus]
        return found if whole else None


class Assumptions:
    """Counted by pods."""

    def __init__(self) -> None:
        self._pods: dict[PodUID, dict[str, Assumed]] = {}

    def put(self, uid: PodUID, node: str, assumed: Assumed) -> None:
        """Add one; those of the same pod on other nodes stay."""
        self._pods.setdefault(uid, {})[node] = assumed

    def on(self, uid: PodUID, node: str) -> Assumed | None:
        return self._pods.get(uid, {}).get(node)

    def hold(self, uid: PodUID, node: str, holder: Holder) -> None:
        """Replace what it holds there, for as long as before."""
        of_pod = self._pods[uid]
        of_pod[node] = replace(of_pod[node], holder=holder)

    def nodes(self, uid: PodUID) -> Iterable[str]:
        """Return those on which the pod is assumed to be."""
        return tuple(self._pods.get(uid, ()))

    def withdraw(self, uid: PodUID, node: str) -> bool:
        """Return whether there was anything to withdraw."""
        of_pod = self._pods.get(uid, {})
        found = of_pod.pop(node, None)
        if found and not of_pod:
            del self._pods[uid]
        return found is not None

    def forget(self, uid: PodUID) -> Iterable[str]:
        """Drop all of a pod; return the nodes on which it was assumed."""
        return self._pods.pop(uid, {}).keys()

    def late(self, now: float) -> list[tuple[PodUID, str]]:
        """Return pods and nodes of those that have expired."""
        return [
            (uid, node)
            for uid, of_pod in self._pods.items()
            for node, one in of_pod.items()
            if one.until <= now
        ]

    def __len__(self) -> int:
        return len(self._pods)

"""What else decides where a pod may go: rules about who asks, not about which GPUs are free.

A verdict about a node is shared by all pods of one shape and kept. What depends on the pod's
namespace and on what others use at this moment, as a quota does, is asked for each request and kept
nowhere: in the filter, for victims, and once more at bind, in the same step that takes the place.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from gpumanager.kubelet.pods import PodView
from gpumanager.scheduler.asks import PodAsk
from gpumanager.scheduler.decide import Filtered
from gpumanager.scheduler.phrases import Unfit
from gpumanager.scheduler.quota.limits import NodeClass
from gpumanager.scheduler.state import HolderObserver, NoObserver

Check = Callable[[NodeClass], Unfit | None]
"""Why the pod may not go to nodes of this class; None: it may."""


class QuotaCheck(HolderObserver, Protocol):
    """Rules about pods, which are told who holds what. On the thread of the state; never waits."""

    @property
    def missing(self) -> str:
        """What has not been read yet; empty once `permits` can be asked."""
        ...

    @property
    def changes(self) -> int:
        """How often the rules have become others; what is held changes none."""
        ...

    def permits(self, pod: PodView, ask: PodAsk) -> Check | None:
        """What holds for this pod now; None: no rule concerns it, and no node is looked at."""
        ...


class NoQuota(NoObserver):
    """NoQuota may go everywhere."""

    missing = ""
    changes = 0

    def permits(self, pod: PodView, ask: PodAsk) -> Check | None:  # noqa: ARG002
        return None


def permitted(
    found: Filtered, check: Check | None, nodes: Mapping[NodeClass, set[str]]
) -> Filtered:
    """`found` less what the rules forbid. nodes: those of each class."""
    if check is None:
        return found
    forbidden = {kind: why for kind in nodes if (why := check(kind)) is not None}
    fitting = frozenset(found.fitting) if forbidden else frozenset[str]()
    return found.without(
        {name: why for kind, why in forbidden.items() for name in nodes[kind] & fitting}
    )

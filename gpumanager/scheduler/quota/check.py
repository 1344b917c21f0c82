"""The quota check: which nodes a pod's namespace may use now, whatever GPUs are free there.

Verdicts about nodes are shared by all pods of one shape and kept. A quota depends on the namespace
and on what its other pods use now, so it is checked for each request and kept nowhere: in filter,
in preempt, and once more in bind, in the same step that reserves the GPUs.
"""

from collections.abc import Callable, Mapping

from gpumanager.kube.pod import PodView
from gpumanager.scheduler.quota.limits import NodeClass
from gpumanager.scheduler.scoring.decide import Filtered
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.state import HolderObserver

Check = Callable[[NodeClass], Unfit | None]
"""Why the pod may not go to nodes of this class; None: it may."""


class QuotaCheck(HolderObserver):
    """No quotas: any pod may go to any node. Runs on the state's thread; never waits."""

    @property
    def missing(self) -> str:
        """What has not been read yet; empty once `permits` can be asked."""
        return ""

    @property
    def changes(self) -> int:
        """How often the quotas have changed; usage does not count."""
        return 0

    def permits(self, pod: PodView, ask: PodShape) -> Check | None:  # noqa: ARG002
        """The check for this pod now; None: its namespace has no quota."""
        return None


def permitted(
    found: Filtered, check: Check | None, nodes: Mapping[NodeClass, set[str]]
) -> Filtered:
    """`found` without nodes that the quota forbids. nodes: by class."""
    if check is None:
        return found
    forbidden = {kind: why for kind in nodes if (why := check(kind)) is not None}
    fitting = frozenset(found.fitting) if forbidden else frozenset[str]()
    return found.without(
        {name: why for kind, why in forbidden.items() for name in nodes[kind] & fitting}
    )

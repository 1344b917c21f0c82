"""Enforces quotas of namespaces: counts what each uses, and which nodes a pod may go to.

Bound and assumed pods count. A bind is checked and assumed in one step, so of two pods that would
exceed a quota together one is refused. A pod that is bound again does not count against itself.

Verdicts about nodes are cached and shared by all pods of one shape. A quota depends on the
namespace and its current usage, so it is checked for each request and never cached: in filter, in
preempt, and again in bind, in the step that reserves the GPUs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView
from gpumanager.scheduler.node import Holder
from gpumanager.scheduler.quota.limits import NodeClass, Quotas, Usage, admits, pod_amount
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.scoring.verdicts import Filtered
from gpumanager.scheduler.state import HolderObserver
from gpumanager.units import CORES_PER_GPU

NOT_UNDERSTOOD: Final = "node(s) were not judged: the GPU quota is not understood"
UNREAD: Final = "GPU quotas"

Check = Callable[[NodeClass], Unfit | None]
"""Why the pod may not go to nodes of this class; None: it may."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the quotas. None: nothing that could be judged by, for that `trouble`.

    read: whether there was an answer at all. changes: how often the quotas have become others.
    """

    quotas: Quotas | None = None
    trouble: str = ""
    read: bool = False
    changes: int = 0


@dataclass(frozen=True, slots=True)
class Counted:
    """One pod on one node."""

    node: str
    namespace: str
    kind: NodeClass
    cores: int


class QuotaCheck(HolderObserver):
    """No quotas: any pod may go to any node. Runs on the state's thread; never waits."""

    @property
    def missing(self) -> str:
        """Return what has not been read yet; empty once `permits` can be called."""
        return ""

    @property
    def changes(self) -> int:
        """Return how often the quotas have changed; usage does not count."""
        return 0

    def permits(self, pod: PodView, ask: PodShape) -> Check | None:  # noqa: ARG002
        """Return the check for this pod now; None: its namespace has no quota."""
        return None


class QuotaRules(QuotaCheck):
    """The check by a ConfigMap's quotas. known: called anew for each pod."""

    def __init__(self, known: Callable[[], Known]) -> None:
        self.usage = Usage()
        self._known = known
        self._counted: dict[PodUID, tuple[Counted, ...]] = {}

    @property
    def missing(self) -> str:
        return "" if self._known().read else UNREAD

    @property
    def changes(self) -> int:
        return self._known().changes

    @property
    def known(self) -> Known:
        """Return the quotas, as far as they are known now."""
        return self._known()

    def held(self, node: str, kind: NodeClass, uid: PodUID, holder: Holder) -> None:
        self.gone(node, uid)
        cores = cores_of(holder.ask)
        one = Counted(node, holder.namespace, kind, cores)
        self._counted[uid] = (*self._counted.get(uid, ()), one)
        self.usage.add(one.namespace, kind, cores)

    def gone(self, node: str, uid: PodUID) -> None:
        before = self._counted.pop(uid, ())
        self._count(-1, (one for one in before if one.node == node))
        if left := tuple(one for one in before if one.node != node):
            self._counted[uid] = left

    def permits(self, pod: PodView, ask: PodShape) -> Check | None:
        """Return what holds at this moment; a check is not to be kept."""
        known = self._known()
        quotas = known.quotas
        if quotas is None:
            refused = Unfit(NOT_UNDERSTOOD, known.trouble, final=True)
            return lambda _: refused
        if pod.namespace not in quotas:
            return None
        cores, own = cores_of(ask), self._counted.get(pod.uid, ())

        def check(kind: NodeClass) -> Unfit | None:
            self._count(-1, own)
            forbidden = admits(quotas, pod.namespace, cores, kind, self.usage)
            self._count(1, own)
            return Unfit(forbidden.phrase, forbidden.detail, final=True) if forbidden else None

        return check

    def _count(self, sign: int, pods: Iterable[Counted]) -> None:
        for one in pods:
            self.usage.add(one.namespace, one.kind, sign * one.cores)


def cores_of(ask: PodShape) -> int:
    """Return the cores that a pod of this shape counts with."""
    return pod_amount(zip(ask.kinds, [one.cores for one in ask.requests], strict=True))


def permitted(
    found: Filtered, check: Check | None, nodes: Mapping[NodeClass, set[str]]
) -> Filtered:
    """Return `found` without nodes that the quota forbids. nodes: by class."""
    if check is None:
        return found
    forbidden = {kind: why for kind in nodes if (why := check(kind)) is not None}
    fitting = frozenset(found.fitting) if forbidden else frozenset[str]()
    return found.without(
        {name: why for kind, why in forbidden.items() for name in nodes[kind] & fitting}
    )


class QuotaCollector(Collector):
    """Exports quotas and their usage. known: called at each scrape. usage: of the rules."""

    def __init__(self, known: Callable[[], Known], usage: Usage) -> None:
        self._known = known
        self._usage = usage

    def collect(self) -> Iterator[GaugeMetricFamily]:
        known = self._known()
        yield GaugeMetricFamily(
            "gpumanager_extender_quota_understood",
            "1 while the ConfigMap of the quotas is valid; else the last valid one counts.",
            float(known.read and not known.trouble),
        )
        gpus = GaugeMetricFamily(
            "gpumanager_extender_quota_gpus",
            "GPUs of a model that a namespace may use, and those it uses; shares by their cores.",
            labels=("namespace", "model", "kind"),
        )
        for namespace, quota in (known.quotas or {}).items():
            for model, limit in (quota.gpus or {}).items():
                used = self._usage.of(namespace, model) / CORES_PER_GPU
                gpus.add_metric((namespace, model, "limit"), limit)
                gpus.add_metric((namespace, model, "used"), used)
        yield gpus

"""Enforces quotas of namespaces: counts what each uses, and which nodes a pod may go to.

Bound and assumed pods count. A bind is checked and assumed in one step, so of two pods that would
exceed a quota together one is refused. A pod that is bound again does not count against itself.

Verdicts about nodes are cached and shared by all pods of one shape. A quota depends on the
namespace and its current usage, so it is checked for each request and never cached: in filter, in
preempt, and again in bind, in the step that reserves the GPUs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpumanager.ids import PodUID
from gpumanager.kube.pod import PodView, pod_amount
from gpumanager.scheduler.node import Holder
from gpumanager.scheduler.quota.limits import SHOWN, NodeClass, Quotas
from gpumanager.scheduler.scoring.pod_shape import PodShape
from gpumanager.scheduler.scoring.unschedulable_reasons import Unfit
from gpumanager.scheduler.scoring.verdicts import Filtered
from gpumanager.scheduler.state import HolderObserver
from gpumanager.units import CORES_PER_GPU

Check = Callable[[NodeClass], Unfit | None]
"""Why the pod may not go to nodes of this class; None: it may."""
Usage = Counter[tuple[str, str]]
"""Cores in use, by namespace and model."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the quotas. None: nothing that could be judged by, for that `trouble`.

    changes: how often the quotas have become others.
    """

    quotas: Quotas | None = None
    trouble: str = ""
    changes: int = 0

    @property
    def read(self) -> bool:
        """Return whether there was an answer at all."""
        return self.quotas is not None or bool(self.trouble)


NO_QUOTAS: Final = Known({})


class Counted(NamedTuple):
    """One pod on one node."""

    node: str
    namespace: str
    kind: NodeClass
    cores: int


def count(usage: Usage, namespace: str, node: NodeClass, cores: int) -> None:
    """Add a pod with so many cores, bound to such a node; negative: it ended."""
    for model in node.models:
        usage[namespace, model] += cores


class QuotaRules(HolderObserver):
    """The check by a ConfigMap's quotas. known: called anew for each pod.

    Runs on the state's thread; never waits.
    """

    def __init__(self, known: Callable[[], Known] = lambda: NO_QUOTAS) -> None:
        self.usage: Usage = Counter()
        self.known = known
        self._counted: dict[PodUID, tuple[Counted, ...]] = {}

    @property
    def missing(self) -> str:
        """Return what has not been read yet; empty once `permits` can be called."""
        return "" if self.known().read else "GPU quotas"

    def held(self, node: str, kind: NodeClass, uid: PodUID, holder: Holder) -> None:
        self.gone(node, uid)
        one = Counted(node, holder.namespace, kind, cores_of(holder.ask))
        self._counted[uid] = (*self._counted.get(uid, ()), one)
        self._count(1, (one,))

    def gone(self, node: str, uid: PodUID) -> None:
        before = self._counted.pop(uid, ())
        self._count(-1, (one for one in before if one.node == node))
        if left := tuple(one for one in before if one.node != node):
            self._counted[uid] = left

    def permits(self, pod: PodView, ask: PodShape) -> Check | None:
        """Return the check for this pod at this moment, not to be kept; None: its namespace has no
        quota."""
        known = self.known()
        quotas = known.quotas
        if quotas is None:
            why = "node(s) were not judged: the GPU quota is not understood"
            refused = Unfit(why, known.trouble, final=True)
            return lambda _: refused
        if pod.namespace not in quotas:
            return None
        cores, own = cores_of(ask), self._counted.get(pod.uid, ())

        def check(kind: NodeClass) -> Unfit | None:
            self._count(-1, own)
            forbidden = admits(quotas, pod.namespace, cores, kind, self.usage)
            self._count(1, own)
            return forbidden

        return check

    def _count(self, sign: int, pods: Iterable[Counted]) -> None:
        for one in pods:
            count(self.usage, one.namespace, one.kind, sign * one.cores)


def admits(
    quotas: Quotas, namespace: str, cores: int, node: NodeClass, used: Usage
) -> Unfit | None:
    """Return why a pod of `namespace` with `cores` may not go to such a node; None: it may.

    used: by others, without this pod. The caller decides and counts in one step: between them no
    other pod may be admitted.
    """
    quota = quotas.get(namespace)
    if quota is None or not cores:
        return None
    if quota.pools and node.pool not in quota.pools:
        names = _words(quota.pools)
        phrase = f"node(s) didn't match the GPU pools of namespace {namespace} ({names})"
        return Unfit(
            phrase, f"its pool is {node.pool!r}" if node.pool else "it is in no pool", final=True
        )
    if quota.gpus is None:
        return None
    counted = sorted(node.models & quota.gpus.keys())
    if not counted:
        names = _words(quota.gpus) or "none"
        phrase = f"node(s) didn't have a GPU model that namespace {namespace} may use ({names})"
        return Unfit(phrase, f"it has {_words(node.models) or 'no model as a label'}", final=True)
    for model in counted:
        most, before = quota.gpus[model] * CORES_PER_GPU, used[namespace, model]
        if before + cores > most:
            # In the words of Kubernetes where a ResourceQuota is exceeded.
            numbers = {"requested": cores, "used": before, "limited": most}
            figures = ", ".join(
                f"{what}: {model}={number / CORES_PER_GPU:.12g}" for what, number in numbers.items()
            )
            phrase = f"node(s) exceeded the GPU quota of namespace {namespace} ({figures})"
            return Unfit(phrase, f"it has {_words(node.models)}", final=True)
    return None


def _words(names: Collection[str]) -> str:
    shown = sorted(names)[:SHOWN]
    return ", ".join((*shown, "…")) if len(names) > SHOWN else ", ".join(shown)


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
    fitting = set(found.fitting) if forbidden else set[str]()
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
                used = self._usage[namespace, model] / CORES_PER_GPU
                gpus.add_metric((namespace, model, "limit"), limit)
                gpus.add_metric((namespace, model, "used"), used)
        yield gpus

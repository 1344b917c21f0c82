"""The cluster page's document. Pure; what each field means is in docs/web.md."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Final

from gpumanager.kubelet.pods import PodUID
from gpumanager.scheduler.explain import Explanation, Memory
from gpumanager.scheduler.node import Holder, NodeState
from gpumanager.scheduler.overview import Amounts, Found, GpuLine, Names, Overview, gpu_lines
from gpumanager.scheduler.quota import Usage
from gpumanager.scheduler.quota_rules import Known, cores_of
from gpumanager.units import CORES_PER_GPU

SCHEMA: Final = 1
WAITING: Final = 50
QUOTAS: Final = 200
REASONS: Final = 8
POD_SECONDS: Final = 900.0
"""kube-scheduler asks about a pod that waits every five minutes at least."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pods that no node would do for, or that could not be bound; the newest first."""

    total: int
    pods: tuple[tuple[str, str, Explanation], ...]


def waiting(
    memory: Memory, waits: Callable[[PodUID], bool], word: str, since: float, most: int = WAITING
) -> Waiting:
    """waits: whether a pod is still there and not bound. word: in small letters; since: seconds
    since the epoch, before which nobody who still asks has asked last."""
    found = [
        (namespace, name, one)
        for (namespace, name), one in memory.newest()
        if not one.bound and (one.trouble or not one.fitting) and one.at >= since
        and word in f"{namespace}/{name}".lower() and waits(PodUID(one.uid))
    ]  # fmt: skip
    return Waiting(len(found), tuple(islice(found, most)))


def sums(overview: Overview) -> dict[str, Any]:
    """Of all nodes, and by product."""
    models = sorted(overview.models.items(), key=lambda one: (-one[1].gpus, one[0]))
    return {
        "totals": {"nodes": len(overview.lines), "pods": overview.pods, **_amounts(overview.total)},
        "models": [
            {"model": model, "nodes": overview.nodes[model], **_amounts(amounts)}
            for model, amounts in models
        ],
    }


def some_nodes(found: Found, names: Names) -> dict[str, Any]:
    return {
        "matches": found.matches,
        "page": found.page,
        "pages": found.pages,
        "nodes": [_node(line.node, names) for line in found.lines],
    }


def pods_waiting(found: Waiting) -> dict[str, Any]:
    pods = [_waiting(namespace, name, one) for namespace, name, one in found.pods]
    return {"total": found.total, "pods": pods}


def quotas(known: Known, usage: Usage) -> dict[str, Any]:
    rows = islice(_quotas(known, usage), QUOTAS)
    return {"understood": not known.trouble, "trouble": known.trouble, "rows": list(rows)}


def _amounts(one: Amounts) -> dict[str, Any]:
    return {
        "gpus": one.gpus,
        "gpus_free": one.free,
        "gpus_closed": one.closed,
        "cores_granted_percent": one.cores_granted,
        "memory_bytes": one.memory,
        "memory_granted_bytes": one.memory_granted,
    }


def _node(node: NodeState, names: Names) -> dict[str, Any]:
    return {
        "name": node.name,
        "trouble": node.trouble,
        "gpus": [_gpu(one) for one in gpu_lines(node)],
        "pods": [_pod(node, names(uid), holder) for uid, holder in node.holders.items()],
    }


def _gpu(one: GpuLine) -> dict[str, Any]:
    return {
        "index": one.gpu.index,
        "uuid": one.gpu.uuid,
        "model": one.gpu.model,
        "closed": one.closed,
        "pods": one.pods,
        "cores_granted_percent": one.cores_granted,
        "memory_bytes": one.gpu.memory,
        "memory_granted_bytes": one.memory_granted,
    }


def _pod(node: NodeState, name: str, holder: Holder) -> dict[str, Any]:
    """gpus: None where nobody has said which they are."""
    places = sorted(holder.packing.uses) if holder.packing else None
    return {
        "namespace": holder.namespace,
        "pod": name.partition("/")[2] or None,
        "cores": cores_of(holder.ask),
        "gpus": None if places is None else [node.topology.gpus[one].index for one in places],
    }


def _waiting(namespace: str, name: str, one: Explanation) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "pod": name,
        "time": round(one.at, 3),
        "nodes": one.nodes,
        "trouble": one.trouble,
        "reasons": [asdict(reason) for reason in one.reasons[:REASONS]],
    }


def _quotas(known: Known, usage: Usage) -> Iterator[dict[str, Any]]:
    for namespace, quota in sorted((known.quotas or {}).items()):
        for model, limit in sorted((quota.gpus or {}).items()):
            used = usage.of(namespace, model) / CORES_PER_GPU
            yield {"namespace": namespace, "model": model, "gpus": limit, "gpus_used": used}

"""The cluster page's document. Pure; docs/web.md has the meaning of each field.

Long lists are cut at a bound, with their total number.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.ids import PodUID
from gpumanager.scheduler.cooperative import Work, batches
from gpumanager.scheduler.extender.explain import Explanation, ExplanationStore, RefusalReason
from gpumanager.scheduler.node import ClaimHolder, Holder, NodeState
from gpumanager.scheduler.overview.find import PORTION, NodePage
from gpumanager.scheduler.overview.lines import Amounts, GpuLine, Overview, gpu_lines
from gpumanager.scheduler.quota.limits import NamespaceQuota, Usage
from gpumanager.scheduler.quota.rules import Known, cores_of
from gpumanager.units import CORES_PER_GPU

SCHEMA: Final = 1
MODELS: Final = 100
PODS: Final = 64
"""Of one node."""
WAITING: Final = 50
QUOTAS: Final = 200
REASONS: Final = 8
WRITTEN_AT_ONCE: Final = 5
"""Nodes."""
POD_SECONDS: Final = 900.0
"""kube-scheduler asks about a pod that waits every five minutes at least."""

Limit = tuple[str, str, int]
"""Namespace, product, and how many of its GPUs the namespace may use."""


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Pods that no node would do for, or that could not be bound; the newest first."""

    total: int
    pods: tuple[tuple[str, str, Explanation], ...]


def waiting(
    memory: ExplanationStore, waits: Callable[[PodUID], bool], word: str, since: float
) -> Work[WaitingPods]:
    """waits: whether a pod is still there and not bound. word: in small letters; since: seconds
    since the epoch, before which nobody who still asks has asked last."""
    found: list[tuple[str, str, Explanation]] = []
    for portion in batches(tuple(memory.newest()), PORTION):
        found += [
            (namespace, name, one)
            for (namespace, name), one in portion
            if not one.bound and (one.trouble or not one.fitting) and one.at >= since
            and word in f"{namespace}/{name}".lower() and waits(PodUID(one.uid))
        ]  # fmt: skip
        yield
    return WaitingPods(len(found), tuple(found[:WAITING]))


def written(
    fields: Mapping[str, Any], overview: Overview, found: NodePage, word: str
) -> Work[bytes]:
    """Return the whole document. fields: those that come first. word: in small letters; pods with
    it in their names come first on each node."""
    rows: list[str] = []
    for portion in batches(found.lines, WRITTEN_AT_ONCE):
        rows += [_text(_node(line.node, word)) for line in portion]
        yield
    place = {"matches": found.matches, "page": found.page, "pages": found.pages}
    text = _text({**sums(overview), **fields, **place})
    return f'{text[:-1]},"nodes":[{",".join(rows)}]}}'.encode()


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def sums(overview: Overview) -> dict[str, Any]:
    """Of all nodes, and by product."""
    models = sorted(overview.models.items(), key=lambda one: (-one[1].gpus, one[0]))
    counts = {"nodes": len(overview.lines), "pods": overview.pods, "models": len(models)}
    return {
        "totals": {**counts, **_amounts(overview.total)},
        "models": [
            {"model": model, "nodes": overview.nodes[model], **_amounts(amounts)}
            for model, amounts in models[:MODELS]
        ],
    }


def pods_waiting(found: WaitingPods) -> dict[str, Any]:
    pods = [_waiting(namespace, name, one) for namespace, name, one in found.pods]
    return {"total": found.total, "pods": pods}


def quotas(known: Known, usage: Usage, word: str) -> Work[dict[str, Any]]:
    """Those in whose namespace or product the word is; the first by name."""
    total, first = 0, list[Limit]()
    for portion in batches(tuple((known.quotas or {}).items()), PORTION):
        limits = [one for one in _limits(portion) if word in f"{one[0]}/{one[1]}".lower()]
        total, first = total + len(limits), sorted(first + limits)[:QUOTAS]
        yield
    rows, trouble = [_quota(one, usage) for one in first], known.trouble
    return {"understood": not trouble, "trouble": trouble, "total": total, "rows": rows}


def _amounts(one: Amounts) -> dict[str, Any]:
    return {
        "gpus": one.gpus,
        "gpus_free": one.free,
        "gpus_closed": one.closed,
        "cores_granted_percent": one.cores_granted,
        "memory_bytes": one.memory,
        "memory_granted_bytes": one.memory_granted,
    }


def _node(node: NodeState, word: str) -> dict[str, Any]:
    pods = _some(tuple(node.holders.values()), word)
    claims = node.offered.holders[: PODS - len(pods)]
    left = len(node.holders) - len(pods) + len(node.offered.holders) - len(claims)
    return {
        "name": node.name,
        "trouble": node.trouble,
        "gpus": [_gpu(one) for one in gpu_lines(node)],
        "pods": [
            *(_pod(node, holder) for holder in pods),
            *(_claim(node, holder) for holder in claims),
        ],
        "pods_left_out": left,
    }


def _some(holders: Sequence[Holder], word: str) -> Sequence[Holder]:
    """As many as are told: those that match first, where not all are."""
    if len(holders) <= PODS:
        return holders
    return sorted(holders, key=lambda one: word not in f"{one.namespace}/{one.name}".lower())[:PODS]


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


def _pod(node: NodeState, holder: Holder) -> dict[str, Any]:
    """gpus: None where nobody has said which they are."""
    places = sorted(holder.packing.uses) if holder.packing else None
    return {
        "namespace": holder.namespace,
        "pod": holder.name,
        "cores": cores_of(holder.ask),
        "gpus": None if places is None else [node.topology.gpus[one].index for one in places],
        "claim": None,
    }


def _claim(node: NodeState, holder: ClaimHolder) -> dict[str, Any]:
    """One line for all pods that share it. gpus: without those that the node does not list."""
    index = {gpu.uuid: gpu.index for gpu in node.topology.gpus}
    return {
        "namespace": holder.namespace,
        "pod": ", ".join(holder.pods),
        "cores": sum(cores for _, cores, _ in holder.uses),
        "gpus": [index[uuid] for uuid, _, _ in holder.uses if uuid in index],
        "claim": holder.claim.partition("/")[2],
    }


def _waiting(namespace: str, name: str, one: Explanation) -> dict[str, Any]:
    return {
        "namespace": namespace,
        "pod": name,
        "time": round(one.at, 3),
        "nodes": one.nodes,
        "trouble": one.trouble,
        "reasons": [_reason(reason) for reason in one.reasons[:REASONS]],
    }


def _reason(one: RefusalReason) -> dict[str, Any]:
    return {
        "reason": one.reason,
        "nodes": one.nodes,
        "example": one.example,
        "detail": one.detail,
    }


def _limits(quotas: Iterable[tuple[str, NamespaceQuota]]) -> Iterator[Limit]:
    for namespace, quota in quotas:
        for model, gpus in (quota.gpus or {}).items():
            yield namespace, model, gpus


def _quota(limit: Limit, usage: Usage) -> dict[str, Any]:
    namespace, model, gpus = limit
    used = usage.of(namespace, model) / CORES_PER_GPU
    return {"namespace": namespace, "model": model, "gpus": gpus, "gpus_used": used}

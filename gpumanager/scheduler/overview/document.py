"""The cluster page's document. Pure; docs/web.md has the meaning of each field.

Long lists are cut at a bound, with their total number.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpumanager.ids import PodUID
from gpumanager.scheduler.cooperative import Work, batches
from gpumanager.scheduler.extender.explain import Explanation, ExplanationStore
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.overview.find import PORTION, NodePage
from gpumanager.scheduler.overview.lines import Amounts, Overview, gpu_lines
from gpumanager.scheduler.quota.limits import Usage
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
    """Return the sums of all nodes, and by product."""
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
    pods = [
        {
            "namespace": namespace,
            "pod": name,
            "time": round(one.at, 3),
            "nodes": one.nodes,
            "trouble": one.trouble,
            "reasons": [
                {
                    "reason": reason.reason,
                    "nodes": reason.nodes,
                    "example": reason.example,
                    "detail": reason.detail,
                }
                for reason in one.reasons[:REASONS]
            ],
        }
        for namespace, name, one in found.pods
    ]
    return {"total": found.total, "pods": pods}


def quotas(known: Known, usage: Usage, word: str) -> Work[dict[str, Any]]:
    """Return those with the word in their namespace or product; the first by name."""
    total, first = 0, list[Limit]()
    for portion in batches(tuple((known.quotas or {}).items()), PORTION):
        limits = [
            (namespace, model, gpus)
            for namespace, quota in portion
            for model, gpus in (quota.gpus or {}).items()
            if word in f"{namespace}/{model}".lower()
        ]
        total, first = total + len(limits), sorted(first + limits)[:QUOTAS]
        yield
    rows = [
        {
            "namespace": namespace,
            "model": model,
            "gpus": gpus,
            "gpus_used": usage.of(namespace, model) / CORES_PER_GPU,
        }
        for namespace, model, gpus in first
    ]
    trouble = known.trouble
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
    holders = list(node.holders.values())
    if len(holders) > PODS:  # those that match come first
        holders.sort(key=lambda one: word not in f"{one.namespace}/{one.name}".lower())
    claims = node.offered.holders[: max(0, PODS - len(holders))]
    left = max(0, len(holders) - PODS) + len(node.offered.holders) - len(claims)
    index = {gpu.uuid: gpu.index for gpu in node.topology.gpus}
    pods: list[dict[str, Any]] = [
        {
            "namespace": one.namespace,
            "pod": one.name,
            "cores": cores_of(one.ask),
            # None where it is not known which they are.
            "gpus": [node.topology.gpus[place].index for place in sorted(one.packing.uses)]
            if one.packing
            else None,
            "claim": None,
        }
        for one in holders[:PODS]
    ]
    pods += [  # one line for all pods that share a claim, without GPUs that the node does not list
        {
            "namespace": claim.namespace,
            "pod": ", ".join(claim.pods),
            "cores": sum(cores for _, cores, _ in claim.uses),
            "gpus": [index[uuid] for uuid, _, _ in claim.uses if uuid in index],
            "claim": claim.claim.partition("/")[2],
        }
        for claim in claims
    ]
    gpus = [
        {
            "index": one.gpu.index,
            "uuid": one.gpu.uuid,
            "model": one.gpu.model,
            "closed": one.closed,
            "pods": one.pods,
            "cores_granted_percent": one.cores_granted,
            "memory_bytes": one.gpu.memory,
            "memory_granted_bytes": one.memory_granted,
        }
        for one in gpu_lines(node)
    ]
    return {
        "name": node.name,
        "trouble": node.trouble,
        "gpus": gpus,
        "pods": pods,
        "pods_left_out": left,
    }

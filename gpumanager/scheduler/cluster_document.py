"""The cluster as one JSON document: sums, pods that wait, quotas, and one page of nodes. Pure.

Each node is as its agent has it at `/api/node`, as far as the extender knows it: what is granted,
not what is used. A node is summed up again only when it has changed since the last read. Long lists
are cut at a bound, with their total number.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.ids import PodUID
from gpumanager.scheduler.cooperative import Work, batches
from gpumanager.scheduler.extender.explain import Explanation, ExplanationStore
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.quota.rules import Known, Usage, cores_of
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

SCHEMA: Final = 1
MODELS: Final = 100
PODS: Final = 64
"""Of one node."""
WAITING: Final = 50
QUOTAS: Final = 200
REASONS: Final = 8
PORTION: Final = 250
"""Lines, or others of which there are many, that are looked through in one piece."""
LOOKED_AT_ONCE: Final = 10
"""Nodes that have changed: half a millisecond, or twice that where hundreds of pods are on each."""
WRITTEN_AT_ONCE: Final = 5
"""Nodes."""
POD_SECONDS: Final = 900.0
"""kube-scheduler asks about a pod that waits every five minutes at least."""

NOTHING: Final = dict.fromkeys(
    (
        *("gpus", "gpus_free", "gpus_closed"),
        *("cores_granted_percent", "memory_bytes", "memory_granted_bytes"),
    ),
    0,
)
"""Amounts of GPUs, by their names in the document. free: whole ones that nobody has anything of;
closed: cordoned or unhealthy."""
Amounts = Counter[str]


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node with GPUs, or with something wrong.

    node: as it was then. amounts: by product. total: of all its products. pods: how many. granted:
    part of its cores. order: of its name as people count, node-9 before node-10. text: what it is
    found by, in small letters: its name, its products, and who is on it.
    """

    node: NodeState
    amounts: Mapping[str, Amounts]
    total: Amounts
    pods: int
    granted: float
    order: str
    text: str


def line_of(node: NodeState) -> NodeLine:
    amounts: dict[str, Amounts] = defaultdict(lambda: Counter(NOTHING))
    total = Counter(NOTHING)
    for gpu in gpu_rows(node):
        taken = gpu["containers"] or gpu["cores_granted_percent"] or not gpu["healthy"]
        more = {
            "gpus": 1,
            "gpus_free": int(not taken),
            "gpus_closed": int(not gpu["healthy"]),
            **{key: gpu[key] for key in tuple(NOTHING)[3:]},
        }
        amounts[gpu["model"]].update(more)
        total.update(more)
    granted = total["cores_granted_percent"] / total["gpus"] if total["gpus"] else 0.0
    claims = node.offered.holders
    claiming = {f"{one.namespace}/{pod}" for one in claims for pod in one.pods}
    who = [f"{one.namespace}/{one.name}" for one in node.holders.values()]
    names = (node.name, *amounts, *who, *(one.claim for one in claims), *sorted(claiming))
    order = re.sub(r"\d+", lambda digits: digits[0].zfill(20), node.name)
    pods = len(who) + len(claiming)
    text = "\n".join(names).lower()
    return NodeLine(node, amounts, total, pods, granted, f"{order}\0{node.name}", text)


def gpu_rows(node: NodeState) -> Iterator[dict[str, Any]]:
    """Yield each GPU as the document has it. A closed one has nothing free in the books: what is
    granted there is read from the holders whose GPUs are known."""
    held: dict[int, tuple[int, int]] = {}
    for holder in node.holders.values() if node.closed else ():
        for place, (cores, memory, _) in holder.packing.uses.items() if holder.packing else ():
            before = held.get(place, (0, 0))
            held[place] = (before[0] + cores, before[1] + memory)
    claimed: dict[GpuUUID, tuple[int, int, int]] = {}  # cores, blocks and claims
    for claim in node.offered.holders:
        for uuid, cores, blocks in claim.uses:
            had = claimed.get(uuid, (0, 0, 0))
            claimed[uuid] = (had[0] + cores, had[1] + blocks, had[2] + 1)
    for place, gpu in enumerate(node.topology.gpus):
        free, closed = node.gpus[place], gpu.uuid in node.closed
        cores, memory = CORES_PER_GPU - free.cores, free.memory - free.blocks
        if closed:
            cores, memory = held.get(place, (0, 0))
        more = claimed.get(gpu.uuid, (0, 0, 0))
        yield {
            "index": gpu.index,
            "uuid": gpu.uuid,
            "model": gpu.model,
            "healthy": not closed,
            "containers": free.processes + more[2],
            "cores_granted_percent": cores + more[0],
            "memory_bytes": gpu.memory,
            "memory_granted_bytes": (memory + more[1]) * MEMORY_BLOCK,
        }


def refresh(lines: dict[str, NodeLine], nodes: Mapping[str, NodeState]) -> Work[None]:
    """Bring the lines up to date. Where it is given up, the rest is left to the next time."""
    for gone in lines.keys() - nodes.keys():
        del lines[gone]
    changed: list[NodeState] = []
    for portion in batches(tuple(nodes.values()), PORTION):
        for node in portion:
            line = lines.get(node.name)
            if (line.node is not node) if line else (node.topology.gpus or node.trouble):
                changed.append(node)
        yield
    for few in batches(changed, LOOKED_AT_ONCE):
        for node in few:
            lines[node.name] = line_of(node)
            if not (node.topology.gpus or node.trouble):
                del lines[node.name]
        yield


SORTS: Final[Mapping[str, Callable[[NodeLine], Any]]] = {
    "name": lambda line: line.order,
    "granted": lambda line: -line.granted,
    "free": lambda line: line.granted,
}
"""Lines alike stay in the order of names."""
STATES: Final[Mapping[str, Callable[[NodeLine], object]]] = {
    "all": lambda _: True,
    "free": lambda line: line.total["gpus_free"],
    "closed": lambda line: line.total["gpus_closed"],
    "trouble": lambda line: line.node.trouble,
}
"""Nodes that have at least one such GPU, or whose GPUs are not known for some trouble."""


MOST_LINES: Final = 100


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody looks for. page: from 1. per_page: lines."""

    search: Annotated[str, msgspec.Meta(max_length=253)] = ""
    state: Literal["all", "free", "closed", "trouble"] = "all"
    sort: Literal["name", "granted", "free"] = "name"
    page: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    per_page: Annotated[int, msgspec.Meta(ge=1, le=MOST_LINES)] = 25

    @property
    def word(self) -> str:
        """What is searched for, as texts of lines are written."""
        return self.search.strip().lower()


def survey(
    lines: Sequence[NodeLine], wanted: Wanted
) -> Work[tuple[dict[str, Any], list[NodeLine]]]:
    """Return the sums of all nodes and by product, with how many lines match and which of how many
    pages is shown; and that page of matching lines. A page beyond the last is the last."""
    word, fits = wanted.word, STATES[wanted.state]
    models: dict[str, Amounts] = defaultdict(lambda: Counter(NOTHING))
    pods, having, total = 0, Counter[str](), Counter(NOTHING)
    matching: list[NodeLine] = []
    for portion in batches(lines, PORTION):
        for line in portion:
            pods += line.pods
            having.update(line.amounts.keys())
            for model, amounts in line.amounts.items():
                models[model].update(amounts)
            if word in line.text and fits(line):
                matching.append(line)
        yield
    matching.sort(key=SORTS["name"])
    yield
    if wanted.sort != "name":
        matching.sort(key=SORTS[wanted.sort])
    for amounts in models.values():
        total.update(amounts)
    largest = sorted(models.items(), key=lambda one: (-one[1]["gpus"], one[0]))[:MODELS]
    pages = max(1, -(-len(matching) // wanted.per_page))
    page = min(wanted.page, pages)
    counts = {"nodes": len(lines), "pods": pods, "models": len(models)}
    fields = {
        "totals": {**counts, **total},
        "models": [
            {"model": model, "nodes": having[model], **amounts} for model, amounts in largest
        ],
        "matches": len(matching),
        "page": page,
        "pages": pages,
    }
    return fields, matching[(page - 1) * wanted.per_page : page * wanted.per_page]


def waiting(
    memory: ExplanationStore, waits: Callable[[PodUID], bool], word: str, since: float
) -> Work[dict[str, Any]]:
    """Return pods that no node would do for, or that could not be bound; the newest first. waits:
    whether a pod is still there and not bound. word: in small letters; since: seconds since the
    epoch, before which nobody who still asks has asked last."""
    found: list[tuple[str, str, Explanation]] = []
    for portion in batches(tuple(memory.newest()), PORTION):
        found += [
            (namespace, name, one)
            for (namespace, name), one in portion
            if not one.bound and (one.trouble or not one.fitting) and one.at >= since
            and word in f"{namespace}/{name}".lower() and waits(PodUID(one.uid))
        ]  # fmt: skip
        yield
    pods = [
        {
            "namespace": namespace,
            "pod": name,
            "time": round(one.at, 3),
            "nodes": one.nodes,
            "trouble": one.trouble,
            "reasons": one.reasons[:REASONS],
        }
        for namespace, name, one in found[:WAITING]
    ]
    return {"total": len(found), "pods": pods}


def written(fields: Mapping[str, Any], lines: Sequence[NodeLine], word: str) -> Work[bytes]:
    """Return the whole document. fields: all but the nodes. word: in small letters; pods with it in
    their names come first on each node."""
    rows: list[str] = []
    for portion in batches(lines, WRITTEN_AT_ONCE):
        rows += [_text(_node(line.node, word)) for line in portion]
        yield
    text = _text(fields)
    return f'{text[:-1]},"nodes":[{",".join(rows)}]}}'.encode()


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def quotas(known: Known, usage: Usage, word: str) -> Work[dict[str, Any]]:
    """Return those with the word in their namespace or product; the first by name."""
    total, first = 0, list[tuple[str, str, int]]()
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
            "gpus_used": usage[namespace, model] / CORES_PER_GPU,
        }
        for namespace, model, gpus in first
    ]
    trouble = known.trouble
    return {"understood": not trouble, "trouble": trouble, "total": total, "rows": rows}


def _node(node: NodeState, word: str) -> dict[str, Any]:
    """Return it as an agent has its node, as far as the extender knows it (`view.node`)."""
    holders = list(node.holders.values())
    if len(holders) > PODS:  # those that match come first
        holders.sort(key=lambda one: word not in f"{one.namespace}/{one.name}".lower())
    claims = node.offered.holders[: max(0, PODS - len(holders))]
    left = max(0, len(holders) - PODS) + len(node.offered.holders) - len(claims)
    gpus = {gpu.uuid: gpu for gpu in node.topology.gpus}
    containers = [
        {
            "namespace": one.namespace,
            "pod": one.name,
            "claim": None,
            "cores_granted_percent": cores_of(one.ask),
            "gpus": None  # where it is not known which they are
            if one.packing is None
            else [
                _device(node.topology.gpus[place], cores, blocks)
                for place, (cores, blocks, _) in sorted(one.packing.uses.items())
            ],
        }
        for one in holders[:PODS]
    ]
    containers += [  # one for all pods that share a claim, without GPUs that the node does not list
        {
            "namespace": claim.namespace,
            "pod": ", ".join(claim.pods),
            "claim": claim.claim.partition("/")[2],
            "cores_granted_percent": sum(cores for _, cores, _ in claim.uses),
            "gpus": [
                _device(gpus[uuid], cores, blocks)
                for uuid, cores, blocks in claim.uses
                if uuid in gpus
            ],
        }
        for claim in claims
    ]
    return {
        "node": node.name,
        "trouble": node.trouble,
        "gpus": list(gpu_rows(node)),
        "containers": containers,
        "containers_left_out": left,
    }


def _device(gpu: Gpu, cores: int, blocks: int) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "share_granted_percent": cores,
        "memory_limit_bytes": blocks * MEMORY_BLOCK,
    }

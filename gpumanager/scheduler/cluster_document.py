"""The cluster as one JSON document: sums, pods that wait, quotas, and one page of nodes. Pure.

Each node is as its agent has it at `/api/node`, as far as the extender knows it: what is granted,
not what is used. A line is computed when its node has changed and the page is read; the sums are
updated by the difference. So ten thousand nodes cost only as much as those that changed since the
last read. Long lists are cut at a bound, with their total number.
"""

import json
import re
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import Any, Final, NamedTuple

from gpumanager.gpu.values import Gpu, GpuUUID
from gpumanager.ids import PodUID
from gpumanager.scheduler.cooperative import Work, batches
from gpumanager.scheduler.extender.explain import Explanation, ExplanationStore
from gpumanager.scheduler.node import NodeState
from gpumanager.scheduler.quota.limits import Usage
from gpumanager.scheduler.quota.rules import Known, cores_of
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

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

NUMBERS: Final = re.compile(r"(\d+)")


class Amounts(NamedTuple):
    """Of GPUs, together. free: whole GPUs that nobody has anything of; closed: cordoned or
    unhealthy. The names are those of the document."""

    gpus: int = 0
    gpus_free: int = 0
    gpus_closed: int = 0
    cores_granted_percent: int = 0
    memory_bytes: int = 0
    memory_granted_bytes: int = 0

    def plus(self, other: "Amounts", sign: int = 1) -> "Amounts":
        return Amounts(*[mine + sign * more for mine, more in zip(self, other, strict=True)])


class GpuLine(NamedTuple):
    """One GPU of a node. memory: bytes. pods: that hold some of it."""

    gpu: Gpu
    cores_granted: int
    memory_granted: int
    pods: int
    closed: bool

    @property
    def free(self) -> bool:
        return not (self.pods or self.cores_granted or self.closed)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node with GPUs, or with something wrong.

    node: as it was then. amounts: by product. total: of all its products. granted: part of its
    cores. text: what it is found by, in small letters: its name, its products, and who is on it.
    """

    node: NodeState
    amounts: Mapping[str, Amounts]
    total: Amounts
    granted: float
    text: str

    @property
    def pods(self) -> int:
        claims = self.node.offered.holders
        claiming = {(one.namespace, pod) for one in claims for pod in one.pods}
        return len(self.node.holders) + len(claiming)


@dataclass(slots=True)
class Overview:
    """Lines by node, and their sums by product. One owner.

    nodes: how many have GPUs of which product.
    """

    lines: dict[str, NodeLine] = field(default_factory=dict)
    models: dict[str, Amounts] = field(default_factory=dict)
    nodes: Counter[str] = field(default_factory=Counter)
    pods: int = 0
    order: list[tuple[list[tuple[int, str]], str]] = field(default_factory=list)
    """By name as people count, node-9 before node-10, then as it is."""

    def tells(self, name: str, node: NodeState | None) -> bool:
        """Return whether its line is of the node as this value."""
        line = self.lines.get(name)
        return line.node is node if line else not _matters(node)

    def put(self, name: str, node: NodeState | None) -> None:
        """Update a node's line; None, or a node without GPUs, has none."""
        before = self.lines.get(name)
        after = line_of(node) if node and _matters(node) else None
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)
            self.lines[name] = after
            if before is None:
                insort(self.order, (_natural(name), name))
        elif before is not None:
            del self.lines[name]
            del self.order[bisect_left(self.order, (_natural(name), name))]

    def _count(self, line: NodeLine, sign: int) -> None:
        self.pods += sign * line.pods
        for model, amounts in line.amounts.items():
            self.nodes[model] += sign
            self.models[model] = self.models.get(model, NO_AMOUNTS).plus(amounts, sign)
            if not self.nodes[model]:
                del self.nodes[model], self.models[model]


def _matters(node: NodeState | None) -> bool:
    return node is not None and bool(node.topology.gpus or node.trouble)


def line_of(node: NodeState) -> NodeLine:
    amounts: dict[str, Amounts] = {}
    for one in gpu_lines(node):
        gpu, cores, memory, _, closed = one
        more = Amounts(1, one.free, closed, cores, gpu.memory, memory)
        amounts[gpu.model] = amounts.get(gpu.model, NO_AMOUNTS).plus(more)
    total = reduce(Amounts.plus, amounts.values(), NO_AMOUNTS)
    granted = total.cores_granted_percent / total.gpus if total.gpus else 0.0
    who = [f"{one.namespace}/{one.name}" for one in node.holders.values()]
    for claim in node.offered.holders:
        who += [claim.claim, *(f"{claim.namespace}/{pod}" for pod in claim.pods)]
    return NodeLine(node, amounts, total, granted, "\n".join((node.name, *amounts, *who)).lower())


def gpu_lines(node: NodeState) -> Iterator[GpuLine]:
    """Yield a line for each GPU. A closed one has nothing free in the books: what is granted there
    is read from the holders whose GPUs are known."""
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
        granted = (memory + more[1]) * MEMORY_BLOCK
        yield GpuLine(gpu, cores + more[0], granted, free.processes + more[2], closed)


NO_AMOUNTS: Final = Amounts()


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key: node-9 before node-10."""
    words = NUMBERS.split(name)
    return [(int(word), "") if word.isdigit() else (-1, word) for word in words]


SORTS: Final = ("name", "granted", "free")
STATES: Final[Mapping[str, Callable[[NodeLine], object]]] = {
    "all": lambda _: True,
    "free": lambda line: line.total.gpus_free,
    "closed": lambda line: line.total.gpus_closed,
    "trouble": lambda line: line.node.trouble,
}
"""Nodes that have at least one such GPU, or whose GPUs are not known for some trouble."""
PORTION: Final = 250
"""Lines, or others of which there are many, that are looked through in one piece."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody looks for. page: from 1. per_page: lines."""

    search: str = ""
    state: str = "all"
    sort: str = "name"
    page: int = 1
    per_page: int = 25

    @property
    def word(self) -> str:
        """What is searched for, as texts of lines are written."""
        return self.search.strip().lower()


def find(overview: Overview, wanted: Wanted) -> Work[tuple[list[NodeLine], dict[str, int]]]:
    """Return the page of matching lines, how many there are in all, and which of how many pages it
    is; a page beyond the last is the last."""
    lines, word, fits = overview.lines, wanted.word, STATES[wanted.state]
    matching: list[NodeLine] = []
    for names in batches(overview.order, PORTION):
        some = [lines[name] for _, name in names]
        matching += [line for line in some if word in line.text and fits(line)]
        yield
    if wanted.sort != "name":
        # Lines alike stay in the order of names: in classes, of which there are few.
        classes: dict[float, list[NodeLine]] = {}
        for portion in batches(matching, PORTION):
            for line in portion:
                classes.setdefault(line.granted, []).append(line)
            yield
        order = sorted(classes, reverse=wanted.sort == "granted")
        matching = list(chain.from_iterable(classes[one] for one in order))
    pages = max(1, -(-len(matching) // wanted.per_page))
    page = min(wanted.page, pages)
    begin = (page - 1) * wanted.per_page
    place = {"matches": len(matching), "page": page, "pages": pages}
    return matching[begin : begin + wanted.per_page], place


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


def sums(overview: Overview) -> dict[str, Any]:
    """Return the sums of all nodes, and by product."""
    models = sorted(overview.models.items(), key=lambda one: (-one[1].gpus, one[0]))
    counts = {"nodes": len(overview.lines), "pods": overview.pods, "models": len(models)}
    return {
        "totals": {
            **counts,
            **reduce(Amounts.plus, overview.models.values(), NO_AMOUNTS)._asdict(),
        },
        "models": [
            {"model": model, "nodes": overview.nodes[model], **amounts._asdict()}
            for model, amounts in models[:MODELS]
        ],
    }


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
            "gpus_used": usage.of(namespace, model) / CORES_PER_GPU,
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
        "gpus": [
            {
                "index": one.gpu.index,
                "uuid": one.gpu.uuid,
                "model": one.gpu.model,
                "healthy": not one.closed,
                "containers": one.pods,
                "cores_granted_percent": one.cores_granted,
                "memory_bytes": one.gpu.memory,
                "memory_granted_bytes": one.memory_granted,
            }
            for one in gpu_lines(node)
        ],
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

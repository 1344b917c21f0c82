"""The journal: every promise made about GPUs, as values, and how they are written down.

One `Allocation` is one admission of one container. It is *answered* once Allocate promised it and
*settled* once PreStartContainer has learnt which container it is for. A *released* one holds
nothing any more and waits only for its directory to be removed.

The text is JSON, one allocation a line, with a version and a checksum over the lines. Device IDs
are written as ranges (`1f3a9c02-c-0..29`), which keeps a full node's journal small.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.kubelet.pods import PodUID
from gpumanager.names import VCORE
from gpumanager.placement.values import Evaluator
from gpumanager.virtual.values import AllocationID

VERSION: Final = 1


class State(Enum):
    """Whom an allocation is for: guessed at best, or known."""

    ANSWERED = "answered"
    SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Claimant:
    """A container of a pod."""

    uid: PodUID
    namespace: str
    name: str
    container: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.container})"


@dataclass(frozen=True, slots=True)
class Allocation:
    """One promise.

    admission: shared by the containers of one pod, which may reuse each other's device IDs.
    gpus: where the capacity really is; it may differ from what the IDs name.
    ceiling: percent of the GPU it may burst up to; None: what it asked for.
    burst_us: how much unused GPU time it may save up; 0: the shim's own choice.
    candidate: who it was thought to be for; pod: who it is for.
    doubted: the kubelet has since given its devices to another pod, so its own was rejected or has
    ended, and nobody has told us; it counts nowhere unless it is settled after all.
    time: seconds since the epoch, of the first answer.
    """

    allocation: AllocationID
    admission: str
    core_ids: tuple[str, ...]
    memory_ids: tuple[str, ...]
    gpus: tuple[GpuUUID, ...]
    evaluator: Evaluator
    why: str
    time: float
    state: State = State.ANSWERED
    ceiling: int | None = None
    burst_us: int = 0
    candidate: Claimant | None = None
    pod: Claimant | None = None
    doubted: bool = False
    released: bool = False

    @property
    def cores(self) -> int:
        return len(self.core_ids)

    @property
    def blocks(self) -> int:
        return len(self.memory_ids)

    @property
    def whole(self) -> bool:
        return self.evaluator is not Evaluator.SHARE

    @property
    def owner(self) -> PodUID | None:
        """The pod it is for, as far as known."""
        claimant = self.pod or self.candidate
        return claimant.uid if claimant else None

    def ids(self, resource: str) -> tuple[str, ...]:
        return self.core_ids if resource == VCORE else self.memory_ids

    def with_ids(self, resource: str, ids: tuple[str, ...]) -> "Allocation":
        if resource == VCORE:
            return replace(self, core_ids=ids)
        return replace(self, memory_ids=ids)


@dataclass(frozen=True, slots=True)
class Journal:
    """All allocations, by their names, oldest first. A value: changes make new journals."""

    allocations: Mapping[AllocationID, Allocation] = field(default_factory=dict)

    def get(self, allocation: AllocationID) -> Allocation | None:
        return self.allocations.get(allocation)

    def settled(self, allocation: AllocationID) -> Claimant | None:
        """Whom it is for, once that is known for certain."""
        known = self.allocations.get(allocation)
        return known.pod if known and known.state is State.SETTLED else None

    def settled_pod(self, allocation: AllocationID) -> PodUID | None:
        claimant = self.settled(allocation)
        return claimant.uid if claimant else None

    def live(self) -> tuple[Allocation, ...]:
        """Those that hold something."""
        return tuple(a for a in self.allocations.values() if not a.released)

    def put(self, *changed: Allocation) -> "Journal":
        return Journal({**self.allocations, **{a.allocation: a for a in changed}})

    def release(self, names: Iterable[AllocationID]) -> "Journal":
        """They hold nothing from now on."""
        return self.put(*(replace(self.allocations[name], released=True) for name in names))

    def doubt(self, names: Iterable[AllocationID]) -> "Journal":
        """Others have been given what they hold."""
        return self.put(*(replace(self.allocations[name], doubted=True) for name in names))

    def drop(self, names: Iterable[AllocationID]) -> "Journal":
        """Forget them."""
        dropped = set(names)
        return Journal({n: a for n, a in self.allocations.items() if n not in dropped})


class Malformed(ValueError):
    """Text that is no journal of ours; says why."""


def encode(journal: Journal) -> bytes:
    """The journal as a file's contents."""
    lines = [_line(allocation) for allocation in journal.allocations.values()]
    head = f'{{"version": {VERSION}, "checksum": "{_checksum(lines)}", "allocations": ['
    return (head + "\n" + ",\n".join(lines) + "\n]}\n").encode()


def decode(contents: bytes) -> Journal:
    """The journal in a file's contents; raises Malformed."""
    try:
        document = json.loads(contents)
        _check(document)
        allocations = [_allocation(record) for record in document["allocations"]]
    except Malformed:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Malformed(f"not a journal ({type(error).__name__}: {error})") from error
    return Journal({allocation.allocation: allocation for allocation in allocations})


def _check(document: Any) -> None:
    if document["version"] != VERSION:
        raise Malformed(f"version {document['version']}; this agent knows up to {VERSION}")
    if _checksum(_dump(record) for record in document["allocations"]) != document["checksum"]:
        raise Malformed("its checksum does not match its contents")


def _checksum(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _dump(record: Any) -> str:
    return json.dumps(record, sort_keys=True)


@lru_cache(maxsize=4096)
def _line(allocation: Allocation) -> str:
    """Allocations never change, so each is put into words once."""
    return _dump(_record(allocation))


def _record(allocation: Allocation) -> dict[str, Any]:
    return {
        "allocation": allocation.allocation,
        "admission": allocation.admission,
        "state": allocation.state.value,
        "core_ids": list(pack(allocation.core_ids)),
        "memory_ids": list(pack(allocation.memory_ids)),
        "gpus": list(allocation.gpus),
        "evaluator": allocation.evaluator.value,
        "why": allocation.why,
        "time": allocation.time,
        "ceiling": allocation.ceiling,
        "burst_us": allocation.burst_us,
        "candidate": _claimant_record(allocation.candidate),
        "pod": _claimant_record(allocation.pod),
        "doubted": allocation.doubted,
        "released": allocation.released,
    }


def _allocation(record: Mapping[str, Any]) -> Allocation:
    return Allocation(
        allocation=AllocationID(record["allocation"]),
        admission=record["admission"],
        state=State(record["state"]),
        core_ids=tuple(unpack(record["core_ids"])),
        memory_ids=tuple(unpack(record["memory_ids"])),
        gpus=tuple(GpuUUID(uuid) for uuid in record["gpus"]),
        evaluator=Evaluator(record["evaluator"]),
        why=record["why"],
        time=float(record["time"]),
        ceiling=record["ceiling"],
        burst_us=int(record.get("burst_us", 0)),  # journals of before have none
        candidate=_claimant(record["candidate"]),
        pod=_claimant(record["pod"]),
        doubted=bool(record["doubted"]),
        released=bool(record["released"]),
    )


def _claimant_record(claimant: Claimant | None) -> dict[str, str] | None:
    if claimant is None:
        return None
    return {
        "uid": claimant.uid,
        "namespace": claimant.namespace,
        "name": claimant.name,
        "container": claimant.container,
    }


def _claimant(record: Mapping[str, str] | None) -> Claimant | None:
    if record is None:
        return None
    return Claimant(PodUID(record["uid"]), record["namespace"], record["name"], record["container"])


_NUMBERED: Final = re.compile(r"(.*-)(0|[1-9]\d*)", re.DOTALL)
_RANGE: Final = re.compile(r"(.*-)(\d+)\.\.(\d+)", re.DOTALL)
_LONGEST_RANGE: Final = 1 << 20


def pack(ids: Iterable[str]) -> Iterator[str]:
    """IDs as ranges, in their order: `a-0, a-1, a-2, b-7` becomes `a-0..2, b-7`."""
    stem, first, last = "", 0, -1
    for device_id in ids:
        match = _NUMBERED.fullmatch(device_id)
        if match and match[1] == stem and int(match[2]) == last + 1:
            last += 1
            continue
        yield from _range(stem, first, last)
        stem, first, last = ("", 0, -1)
        if match:
            stem, first, last = match[1], int(match[2]), int(match[2])
        else:
            yield device_id
    yield from _range(stem, first, last)


def _range(stem: str, first: int, last: int) -> Iterator[str]:
    if stem:
        yield f"{stem}{first}" if first == last else f"{stem}{first}..{last}"


def unpack(ranges: Iterable[str]) -> Iterator[str]:
    """What `pack` made of, again; raises Malformed for a range nobody would write."""
    for text in ranges:
        match = _RANGE.fullmatch(text)
        if match is None:
            yield text
            continue
        first, last = int(match[2]), int(match[3])
        if last - first > _LONGEST_RANGE:
            raise Malformed(f"range {text!r} is too long")
        yield from (f"{match[1]}{number}" for number in range(first, last + 1))

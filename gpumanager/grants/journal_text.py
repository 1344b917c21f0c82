"""Allocations in words: JSON, with device IDs as ranges (`1f3a9c02-c-0..29`), which keeps it small.

Also the text of journals of before, one JSON document with a checksum over its allocations.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.journal import Allocation, Claimant, Journal, State
from gpumanager.kubelet.pods import PodUID
from gpumanager.placement.values import Evaluator
from gpumanager.virtual.values import AllocationID

WHOLE_FILE: Final = 1
"""The version of a journal that is one document."""

UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading JSON of an unknown shape raises."""


class Malformed(ValueError):
    """Text that is no journal of ours; says why."""


def dump(document: Any) -> str:
    """In one line, the same for the same contents."""
    return json.dumps(document, sort_keys=True)


def decode_document(contents: bytes, newest: int) -> Journal:
    """The journal in a file of before; raises Malformed. newest: the version known here."""
    try:
        document = json.loads(contents)
        _check(document, newest)
        allocations = [allocation_of(one) for one in document["allocations"]]
    except Malformed:
        raise
    except UNREADABLE as error:
        raise Malformed(f"not a journal ({type(error).__name__}: {error})") from error
    return Journal({allocation.allocation: allocation for allocation in allocations})


def _check(document: Any, newest: int) -> None:
    if document["version"] != WHOLE_FILE:
        raise Malformed(f"version {document['version']}; this agent knows up to {newest}")
    lines = "\n".join(dump(one) for one in document["allocations"])
    if hashlib.sha256(lines.encode()).hexdigest() != document["checksum"]:
        raise Malformed("its checksum does not match its contents")


def record(allocation: Allocation) -> dict[str, Any]:
    """An allocation as JSON has it."""
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
        "inherited": allocation.inherited,
    }


def allocation_of(record: Mapping[str, Any]) -> Allocation:
    """What `record` made of it, again; raises what the record lacks, or Malformed."""
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
        inherited=bool(record.get("inherited", False)),
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

"""Grants in words: JSON, with device IDs as ranges (`1f3a9c02-c-0..29`), which keeps it small.

Also the text of journals of before, one JSON document with a checksum over its allocations.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.grants.grant import (
    Claimant,
    ClaimedDevice,
    ClaimSource,
    DevicePluginSource,
    EvidenceSource,
    Grant,
    LegacySource,
    Share,
    Source,
    State,
)
from gpumanager.grants.journal import Journal
from gpumanager.ids import AllocationID, PodUID
from gpumanager.placement.values import Evaluator
from gpumanager.units import CORES_PER_GPU

WHOLE_FILE: Final = 1
"""The version of a journal that is one document."""

UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading JSON of an unknown shape raises."""


_CLAIM: Final = "claim"
_KINDS: Final[Mapping[type[DevicePluginSource], str]] = {
    DevicePluginSource: "device-plugin",
    LegacySource: "gpu-manager",
    EvidenceSource: "evidence",
}
_SOURCES: Final = {kind: source for source, kind in _KINDS.items()}
_LEGACY_ID: Final = "tencent.com/"
_MADE_UP: Final = (
    "adopted: it runs with this allocation",
    "adopted: its directory is there, and nobody can say whose it is",
)
"""Why versions 1 and 2 held a grant whose IDs they had made up."""


class Malformed(ValueError):
    """Text that is no journal of ours; says why."""


def dump(document: Any) -> str:
    """In one line, the same for the same contents."""
    return json.dumps(document, sort_keys=True)


def decode_document(contents: bytes, newest: int) -> Journal:
    """Return the journal in a file of before; raises Malformed. newest: the version known here."""
    with understood():
        document = json.loads(contents)
        if document["version"] != WHOLE_FILE:
            raise Malformed(f"version {document['version']}; this agent knows up to {newest}")
        lines = "\n".join(dump(one) for one in document["allocations"])
        if hashlib.sha256(lines.encode()).hexdigest() != document["checksum"]:
            raise Malformed("its checksum does not match its contents")
        return Journal().put(*(grant_of(one) for one in document["allocations"]))


@contextlib.contextmanager
def understood() -> Generator[None]:
    """Turn what reading JSON of an unknown shape raises into Malformed."""
    try:
        yield
    except Malformed:
        raise
    except UNREADABLE as error:
        raise Malformed(f"not a journal ({type(error).__name__}: {error})") from error


def record(grant: Grant) -> dict[str, Any]:
    """Return a grant as a JSON object."""
    return {
        "id": grant.id,
        "state": grant.state.value,
        # A list: a container sees its GPUs in this order, and the keys of a document are sorted.
        "shares": [[uuid, one.cores, one.blocks] for uuid, one in grant.shares.items()],
        "isolation": grant.isolation,
        "source": _source_record(grant.source),
        "evaluator": grant.evaluator.value,
        "why": grant.why,
        "time": grant.time,
        "ceiling": grant.ceiling,
        "graphics": grant.graphics,
        "candidate": grant.candidate and asdict(grant.candidate),
        "pod": grant.pod and asdict(grant.pod),
        "doubted": grant.suspect,
        "released": grant.released,
    }


def grant_of(record: Mapping[str, Any]) -> Grant:
    """What `record` made of it, again; raises what the record lacks, or Malformed."""
    if "shares" not in record:
        record = _as_now(record)
    return Grant(
        id=AllocationID(record["id"]),
        source=_source(record["source"]),
        shares={
            GpuUUID(uuid): Share(int(cores), int(blocks))
            for uuid, cores, blocks in record["shares"]
        },
        isolation=record["isolation"],
        state=State(record["state"]),
        evaluator=Evaluator(record["evaluator"]),
        why=record["why"],
        time=float(record["time"]),
        ceiling=record["ceiling"],
        graphics=bool(record.get("graphics", True)),
        candidate=_claimant(record["candidate"]),
        pod=_claimant(record["pod"]),
        suspect=bool(record["doubted"]),
        released=bool(record["released"]),
    )


def _source_record(source: Source) -> dict[str, Any]:
    if isinstance(source, ClaimSource):
        return {
            "kind": _CLAIM,
            "uid": source.uid,
            "namespace": source.namespace,
            "name": source.name,
            "devices": [[one.name, one.request, one.share] for one in source.devices],
            "admin": source.admin,
        }
    return {
        "kind": _KINDS[type(source)],
        "admission": source.admission,
        "core_ids": list(pack(source.core_ids)),
        "memory_ids": list(pack(source.memory_ids)),
    }


def _source(record: Mapping[str, Any]) -> Source:
    if record["kind"] == _CLAIM:
        return ClaimSource(
            record["uid"],
            record["namespace"],
            record["name"],
            tuple(ClaimedDevice(*one) for one in record["devices"]),
            bool(record["admin"]),
        )
    return _SOURCES[record["kind"]](
        record["admission"],
        tuple(unpack(record["core_ids"])),
        tuple(unpack(record["memory_ids"])),
    )


def _as_now(old: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record of versions 1 and 2, which had device IDs and an evaluator, and no shares.

    Amounts were numbers of device IDs; where no ID was known, IDs were made up. Example: 30 cores
    of a container that was found running had the last 30 free IDs of its GPU, or
    `unproved-1f3a9c02-…`; one of gpu-manager, without a checkpoint, `<pod UID>/main-c-0..29`.
    """
    cores, memory = ids = [list(unpack(old[key])) for key in ("core_ids", "memory_ids")]
    exclusive = Evaluator(old["evaluator"]) is not Evaluator.SHARE
    kind, held = "device-plugin", bool(cores)
    if old.get("inherited", False):
        kind, held = "gpu-manager", False
        ids = [[i for i in some if i.startswith(_LEGACY_ID)] for some in ids]
    elif old["why"] in _MADE_UP:
        kind, ids = "evidence", [[], []]
    share = (CORES_PER_GPU if exclusive else len(cores), len(memory))
    source = {"kind": kind, "admission": old["admission"], "core_ids": ids[0], "memory_ids": ids[1]}
    return {
        **old,
        "id": old["allocation"],
        "source": source,
        "shares": [(gpu, *share) for gpu in old["gpus"]],
        "isolation": ("passthrough" if exclusive else "shim") if held else "",
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

"""`/api/placement`: the topology, which container was granted which GPU and why, and refusals.

For `tree` and `explain`. What of it is used is in `/metrics`.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from aiohttp import web

from gpumanager.gpu.values import Gpu, Topology
from gpumanager.grants.grant import Claimant, ClaimSource, Grant, Source
from gpumanager.http_server import RequestHandler
from gpumanager.monitor.admissions import Admissions
from gpumanager.monitor.ports import Sources
from gpumanager.monitor.snapshot import labels_of
from gpumanager.monitor.unlimited.audit import Tally
from gpumanager.monitor.web_pages.routes import JSON, answer

PATH: Final = "/api/placement"


def handlers(
    sources: Callable[[], Sources], admissions: Admissions, tally: Tally
) -> Mapping[str, RequestHandler]:
    async def placement(_request: web.BaseRequest) -> web.Response:
        told = document(sources(), admissions, time.time(), tally.unlimited)
        found = json.dumps(told, separators=(",", ":"))
        return answer(200, found.encode(), JSON)

    return {PATH: placement}


def document(
    sources: Sources,
    admissions: Admissions,
    now: float,
    unlimited: Mapping[tuple[str, ...], int] = MappingProxyType({}),
) -> dict[str, Any]:
    """now: seconds since the epoch. unlimited: as the tally of the audit has them."""
    topology = sources.topology()
    return {
        "node": sources.node,
        "time": round(now, 3),
        "topology": topology_json(topology),
        "promises": [
            grant_json(one, topology, sources.users(one), unlimited)
            for one in sources.journal().live()
        ],
        "happened": [one.as_json() for one in admissions],
    }


def topology_json(topology: Topology) -> dict[str, Any]:
    """bonds: a square of pairs, the level and the number of NVLinks; null on the diagonal."""
    bonds = [
        [None if bond is None else [bond.level.name, bond.nvlinks] for bond in row]
        for row in topology.bonds
    ]
    return {"gpus": [_gpu(gpu) for gpu in topology.gpus], "bonds": bonds}


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "minor": gpu.minor,
        "uuid": gpu.uuid,
        "bus_id": gpu.bus_id,
        "model": gpu.model,
        "memory_bytes": gpu.memory,
        "numa_node": gpu.numa_node,
    }


def grant_json(
    one: Grant,
    topology: Topology,
    users: Sequence[Claimant],
    unlimited: Mapping[tuple[str, ...], int],
) -> dict[str, Any]:
    """thought: the pod it was expected for, where another pod has it. users: of a claim, as far as
    known; pod and container are the first of them."""
    known = next(iter(users), one.pod or one.candidate)
    swapped = one.pod and one.candidate and one.pod.uid != one.candidate.uid
    return {
        "pod": _pod(known),
        "uid": known.uid if known else None,
        "container": known.container if known else None,
        "state": one.state.value,
        "thought": _pod(one.candidate) if swapped else None,
        "gpus": [gpu.index for gpu in topology.gpus if gpu.uuid in one.gpus],
        "uuids": list(one.gpus),
        "cores": one.cores,
        "blocks": one.blocks,
        "ceiling": one.ceiling,
        "whole": one.exclusive,
        "rule": one.evaluator.value,
        "why": one.why,
        "time": round(one.time, 3),
        "doubted": one.suspect,
        "inherited": one.legacy,
        "unlimited": _unlimited(one, known, users, unlimited),
        "shares": {
            uuid: {"cores": share.cores, "blocks": share.blocks, "whole": share.exclusive}
            for uuid, share in one.shares.items()
        },
        "claim": _claim(one.source),
        "users": [{"pod": _pod(user), "container": user.container} for user in users],
    }


def _claim(source: Source) -> dict[str, Any] | None:
    """None for what came by a device plugin. requests: by the names that pods use."""
    if not isinstance(source, ClaimSource):
        return None
    name, requests = f"{source.namespace}/{source.name}", list(source.requests)
    return {"name": name, "uid": source.uid, "requests": requests, "admin": source.admin}


def _unlimited(
    grant: Grant,
    known: Claimant | None,
    users: Sequence[Claimant],
    found: Mapping[tuple[str, ...], int],
) -> dict[str, int]:
    """Its processes for which no limit holds, and those of which only the pod is known."""
    if grant.pod is None or known is None or grant.exclusive:
        return {}
    mine = {labels_of(known), *((*labels_of(one)[:2], "") for one in (known, *users))}
    counts = Counter[str]()
    for (*who, reason), count in found.items():
        if tuple(who) in mine:
            counts[reason] += count
    return dict(counts)


def _pod(who: Claimant | None) -> str | None:
    return f"{who.namespace}/{who.name}" if who else None

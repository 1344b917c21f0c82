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

from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Claimant, ClaimSource, Grant
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
    """Return it. now: seconds since the epoch. unlimited: as the audit's tally has them."""
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
    """Return it; bonds: a square of level and number of NVLinks, null on the diagonal."""
    bonds = [
        [None if bond is None else [bond.level.name, bond.nvlinks] for bond in row]
        for row in topology.bonds
    ]
    gpus = [
        {
            "index": gpu.index,
            "minor": gpu.minor,
            "uuid": gpu.uuid,
            "bus_id": gpu.bus_id,
            "model": gpu.model,
            "memory_bytes": gpu.memory,
            "numa_node": gpu.numa_node,
        }
        for gpu in topology.gpus
    ]
    return {"gpus": gpus, "bonds": bonds}


def grant_json(
    one: Grant,
    topology: Topology,
    users: Sequence[Claimant],
    unlimited: Mapping[tuple[str, ...], int],
) -> dict[str, Any]:
    """Return a grant; thought: the pod it was expected for, where another pod has it.

    users: of a claim, as far as known; pod and container are the first of them.
    """
    known = next(iter(users), one.pod or one.candidate)
    swapped = one.pod and one.candidate and one.pod.uid != one.candidate.uid
    counts = Counter[str]()
    if one.pod is not None and known is not None and not one.exclusive:
        # Its processes for which no limit holds, and those of which only the pod is known.
        mine = {labels_of(known), *((*labels_of(user)[:2], "") for user in (known, *users))}
        for (*who, reason), count in unlimited.items():
            if tuple(who) in mine:
                counts[reason] += count
    claim = one.source if isinstance(one.source, ClaimSource) else None
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
        "unlimited": dict(counts),
        "shares": {
            uuid: {"cores": share.cores, "blocks": share.blocks, "whole": share.exclusive}
            for uuid, share in one.shares.items()
        },
        "claim": claim
        and {
            "name": f"{claim.namespace}/{claim.name}",
            "uid": claim.uid,
            "requests": list(claim.requests),  # by the names that pods use
            "admin": claim.admin,
        },
        "users": [{"pod": _pod(user), "container": user.container} for user in users],
    }


def _pod(who: Claimant | None) -> str | None:
    return f"{who.namespace}/{who.name}" if who else None

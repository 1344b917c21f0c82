"""This node as one JSON document, for the web page, `top`, `tree`, `explain` and the bundle. Pure.

Its schema, with what each field means, is `gpumanager/view/node.schema.json`. Names and units are
those of the metrics. What nobody reports is null: of a GPU that does not report it, and, where no
books are kept because the whole GPU was given, everything that stands in books.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpumanager.gpu.values import Topology
from gpumanager.grants.grant import Claimant, ClaimSource, Grant, Share, State
from gpumanager.monitor.events import Event
from gpumanager.monitor.metrics.rows import Page, watts
from gpumanager.monitor.snapshot import ContainerSnapshot, labels_of
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK

SCHEMA: Final = 1
"""Counts up when a field changes its meaning or goes; new ones may come at any time."""

Unlimited = Mapping[tuple[str, ...], int]
"""Processes without limits, by namespace, pod, container and what they lack."""


def node_document(
    page: Page, events: Iterable[Event], *, time: float, not_ready: str, period: float
) -> dict[str, Any]:
    """Return it. time: of the snapshot, since the epoch; period: seconds between two."""
    snapshot = page.snapshot
    topology = snapshot.topology
    shown = {view.grant.id: view for view in snapshot.containers}
    return {
        "schema": SCHEMA,
        "node": snapshot.node,
        "version": page.version,
        "time": round(time, 3),
        "period_seconds": period,
        "driver_answers": snapshot.answered,
        "not_ready": not_ready,
        "not_registered": sorted(name for name, known in snapshot.registered.items() if not known),
        "gpus": [
            {
                "index": view.gpu.index,
                "minor": view.gpu.minor,
                "uuid": view.gpu.uuid,
                "model": view.gpu.model,
                "bus_id": view.gpu.bus_id,
                "numa_node": view.gpu.numa_node,
                "healthy": view.fitness.healthy,
                "xid_errors": {str(xid): count for xid, count in sorted(view.fitness.xids.items())},
                "memory_bytes": view.gpu.memory,
                "memory_used_bytes": view.status and view.status.memory_used,
                "memory_granted_bytes": view.memory,
                "cores_granted_percent": view.cores,
                "containers": view.containers,
                "utilization_percent": view.status and view.status.percent,
                "temperature_celsius": view.status and view.status.temperature_celsius,
                "power_watts": watts(view),
            }
            for view in snapshot.gpus
        ],
        "links": [
            [None if bond is None else [bond.level.name, bond.nvlinks] for bond in row]
            for row in topology.bonds
        ],
        "containers": [
            *(_container(view.grant, view.users, topology, page.tally.unlimited, view)
              for view in snapshot.containers),
            *(_container(one, users, topology, page.tally.unlimited)
              for one, users in snapshot.live if one.id not in shown),
        ],
        "events": [event.as_json(snapshot.node) for event in events],
    }  # fmt: skip


def _container(
    grant: Grant,
    users: Sequence[Claimant],
    topology: Topology,
    unlimited: Unlimited,
    view: ContainerSnapshot | None = None,
) -> dict[str, Any]:
    """Return a grant. users: of a claim, as far as known. view: None where nothing is measured of
    it: it has not started, only looks, or another grant to the same names is newer."""
    known = next(iter(users), grant.pod or grant.candidate)
    swapped = grant.pod and grant.candidate and grant.pod.uid != grant.candidate.uid
    counts = Counter[str]()
    if grant.pod is not None and known is not None and not grant.exclusive:
        # Its processes for which no limit holds, and those of which only the pod is known.
        mine = {labels_of(known), *((*labels_of(user)[:2], "") for user in (known, *users))}
        for (*who, reason), count in unlimited.items():
            if tuple(who) in mine:
                counts[reason] += count
    claim = grant.source if isinstance(grant.source, ClaimSource) else None
    return {
        "namespace": known.namespace if known else claim and claim.namespace,
        "pod": known and (known.name or known.uid),
        "container": known and known.container,
        "pod_uid": known and known.uid,
        "state": _state(grant, view),
        "admitted": round(grant.time, 3),
        "evaluator": grant.evaluator.value,
        "why": grant.why,
        "expected_pod": f"{grant.candidate.namespace}/{grant.candidate.name}"
        if swapped and grant.candidate
        else None,
        "suspect": grant.suspect,
        "legacy": grant.legacy,
        "claim": claim and claim.name,
        "claim_uid": claim and claim.uid,
        "requests": list(claim.requests) if claim else [],  # by the names that pods use
        "users": [
            {"namespace": one.namespace, "pod": one.name, "pod_uid": one.uid,
             "container": one.container}
            for one in users
        ],
        "unlimited_processes": dict(counts),
        "gpus": list(_devices(grant, topology, view)),
    }  # fmt: skip


def _state(grant: Grant, view: ContainerSnapshot | None) -> str:
    if view is not None:
        return "confirmed"
    if isinstance(grant.source, ClaimSource) and grant.source.admin:
        return "admin"
    return "superseded" if grant.state is State.CONFIRMED else "allocated"


def _devices(
    grant: Grant, topology: Topology, view: ContainerSnapshot | None
) -> Iterator[dict[str, Any]]:
    measured = {one.gpu.uuid: one for one in view.devices} if view else {}
    for uuid in dict.fromkeys((*measured, *grant.shares)):
        device, gpu = measured.get(uuid), topology.by_uuid(uuid)
        share = grant.shares.get(uuid, Share(device.granted if device else 0, 0))
        size = gpu.memory if gpu and share.exclusive else share.blocks * MEMORY_BLOCK
        granted = device.granted if device else min(share.cores, CORES_PER_GPU)
        ceiling = min(max(grant.ceiling or 0, granted), CORES_PER_GPU)
        books = None if share.exclusive else device
        gpu = device.gpu if device else gpu
        yield {
            "index": gpu and gpu.index,
            "uuid": uuid,
            "whole": share.exclusive,
            "memory_limit_bytes": device.limit if device else size,
            "memory_used_bytes": books and books.used,
            "memory_peak_bytes": books and books.peak,
            "memory_measured_bytes": device and device.measured,
            "memory_refusals": books and books.refused,
            "share_granted_percent": granted,
            "share_ceiling_percent": device.ceiling if device else ceiling,
            "share_percent": books and round(books.share, 2),
            "utilization_percent": device and device.percent,
            "gpu_seconds": books and round(books.charged_ns / 1e9, 3),
            "throttled_seconds": books and round(books.throttled_ns / 1e9, 3),
            "launches": books and books.launches,
            "launches_throttled": books and books.throttled,
            "processes": len(device.pids) if device else 0,
        }

"""One look at this node as a JSON document. Pure; what each field means is in docs/web.md.

Names and units are those of the metrics. What nobody tells is null: of a GPU that does not say it,
and, where no books are kept because the whole GPU was given, everything that stands in books.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.monitor.metrics.rows import Page, watts
from gpumanager.monitor.snapshot import ContainerSnapshot
from gpumanager.monitor.web_pages.events import Event

SCHEMA: Final = 1
"""Counts up when a field changes its meaning or goes; new ones may come at any time."""


Throttled = Callable[[AllocationID, GpuUUID], float | None]
"""Percent of the last minute that a grant's launches on a GPU were throttled."""


def document(
    page: Page,
    events: Iterable[Event],
    throttled: Throttled,
    *,
    time: float,
    not_ready: str,
    period: float,
) -> dict[str, Any]:
    """Return it without the history. time: of the look, since the epoch; period: between two."""
    snapshot = page.snapshot
    return {
        "schema": SCHEMA,
        "node": snapshot.node,
        "version": page.version,
        "time": round(time, 3),
        "period_seconds": period,
        "driver_answers": snapshot.answered,
        "not_ready": not_ready,
        "gpus": [
            {
                "index": view.gpu.index,
                "uuid": view.gpu.uuid,
                "model": view.gpu.model,
                "bus_id": view.gpu.bus_id,
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
        "containers": list(_containers(snapshot.containers, throttled)),
        "events": [event.as_json() for event in events],
    }


def _containers(
    views: Iterable[ContainerSnapshot], throttled: Throttled
) -> Iterator[dict[str, Any]]:
    for view in views:
        gpus = []
        for device in view.devices:
            books = {
                "memory_used_bytes": device.used,
                "memory_peak_bytes": device.peak,
                "memory_refusals": device.refused,
                "share_percent": round(device.share, 2),
                "gpu_seconds": round(device.charged_ns / 1e9, 3),
                "throttled_seconds": round(device.throttled_ns / 1e9, 3),
                "throttled_percent": throttled(view.grant.id, device.gpu.uuid),
                "launches": device.launches,
                "launches_throttled": device.throttled,
            }
            gpus.append(
                {
                    "index": device.gpu.index,
                    "uuid": device.gpu.uuid,
                    "memory_limit_bytes": device.limit,
                    "memory_measured_bytes": device.measured,
                    "share_promised_percent": device.granted,
                    "share_ceiling_percent": device.ceiling,
                    "utilization_percent": device.percent,
                    "processes": len(device.pids),
                    **(dict.fromkeys(books) if view.whole else books),
                }
            )
        yield {
            "namespace": view.labels[0],
            "pod": view.labels[1],
            "container": view.owner.container,
            "pod_uid": view.owner.uid,
            "admitted": round(view.grant.time, 3),
            "why": view.grant.why,
            "whole": view.whole,
            "claim": view.claim and view.claim.name,
            "users": [
                {"pod": one.name, "pod_uid": one.uid, "container": one.container}
                for one in view.users
            ],
            "gpus": gpus,
        }

"""A node read from its agent's `/metrics`, the page that Prometheus reads. Pure.

Whatever stands there is made fit for a terminal first: names come from whoever makes pods.
"""

import re
from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from gpumanager.errors import GpuManagerError
from gpumanager.view.values import ContainerRow, GpuRow, NodeView

Labels = tuple[str, ...]
Series = Mapping[str, Mapping[Labels, float]]

GPU: Final = ("gpu", "uuid")
DEVICE: Final = ("namespace", "pod", "container", "uuid")
KEYS: Final = {
    "gpumanager_build_info": ("version",),
    "gpumanager_driver_up": (),
    "gpumanager_kubelet_registered": ("resource",),
    "gpumanager_gpu_info": ("uuid", "gpu", "model", "bus_id"),
    "gpumanager_gpu_xid_errors_total": ("uuid", "xid"),
    "container_request_gpu_utilization": ("node",),
    "gpumanager_container_unlimited_processes": ("namespace", "pod", "container", "reason"),
    "gpumanager_claim_info": ("namespace", "claim", "request", "pod", "container"),
}
"""By which labels these series are told apart; those of a GPU by UUID, of a container by DEVICE."""

CONTAINER_METRIC: Final = "gpumanager_container_"
GPU_METRIC: Final = "gpumanager_gpu_"
_INDEX: Final = re.compile(r"gpu([0-9]{1,6})")


class NotAnAgent(GpuManagerError):
    """Something answered, and it is not the metrics of an agent."""


def read_metrics(text: str) -> NodeView:
    """Read a node. Raises NotAnAgent."""
    series = _series(text)
    versions = series.get("gpumanager_build_info", {})
    if not versions:
        raise NotAnAgent("answers, but not as the node agent does: check the port")
    rows = _containers(series)
    xids: dict[str, int] = {}
    for (uuid, _), count in series.get("gpumanager_gpu_xid_errors_total", {}).items():
        xids[uuid] = xids.get(uuid, 0) + int(count)
    gpus = []
    for uuid, name, model, bus_id in series.get("gpumanager_gpu_info", {}):
        of_gpu = _values(series, GPU_METRIC, (uuid,))
        index = _INDEX.fullmatch(name)
        row = GpuRow(
            index=int(index[1]) if index else 0,
            uuid=uuid,
            model=model,
            bus_id=bus_id,
            healthy=bool(of_gpu.get("healthy")),
            memory=of_gpu.get("memory_bytes") or 0,
            memory_granted=of_gpu.get("memory_granted_bytes") or 0,
            cores=_percent(of_gpu.get("cores_granted_ratio")) or 0,
            memory_used=of_gpu.get("memory_used_bytes"),
            busy=_percent(of_gpu.get("utilization_ratio")),
            celsius=of_gpu.get("temperature_celsius"),
            watts=of_gpu.get("power_watts"),
            xids=xids.get(uuid, 0),
            containers=rows.get(uuid, ()),
        )
        gpus.append(row)
    return NodeView(
        name=next((key[0] for key in series.get("container_request_gpu_utilization", {})), ""),
        version=next(iter(versions))[0],
        answers=any(series.get("gpumanager_driver_up", {}).values()),
        unregistered=tuple(
            sorted(
                key[0]
                for key, on in series.get("gpumanager_kubelet_registered", {}).items()
                if not on
            )
        ),
        gpus=tuple(sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid))),
    )


def _series(text: str) -> Series:
    """Parse name → labels that tell its series apart → value; raises NotAnAgent."""
    found: dict[str, dict[Labels, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name
                of_gpu = ("uuid",) if name.startswith(GPU_METRIC) else ()
                usual = DEVICE if name.startswith(CONTAINER_METRIC) else of_gpu
                labels = (sample.labels.get(key, "") for key in KEYS.get(name, usual))
                found.setdefault(name, {})[tuple(map(printable, labels))] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise NotAnAgent("answers, but not with metrics: check the port") from error
    return found


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else round(100 * ratio, 9)


def _values(series: Series, prefix: str, labels: Labels) -> Mapping[str, float]:
    """Return the values that have these labels, by the rest of their series' names."""
    return {
        name.removeprefix(prefix): values[labels]
        for name, values in series.items()
        if name.startswith(prefix) and labels in values
    }


def printable(text: str) -> str:
    """Return the text with nothing in it that moves a cursor or changes a colour."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _containers(series: Series) -> Mapping[str, tuple[ContainerRow, ...]]:
    """Return the containers by the UUID of the GPU."""
    users: dict[Labels, list[Labels]] = {}  # of each claim: all containers that share it
    for labels in series.get("gpumanager_claim_info", {}):
        users.setdefault(labels[:3], []).append(labels)
    claims = {(one[0], *one[3:]): group for group in users.values() for one in group}
    found: dict[str, list[ContainerRow]] = {}
    for labels in series.get("gpumanager_container_memory_limit_bytes", {}):
        namespace, pod, container, uuid = labels
        unlimited: dict[str, int] = {}  # with those of which only the pod is known
        processes = series.get("gpumanager_container_unlimited_processes", {})
        for (*who, reason), count in processes.items():
            if count and (*who,) in {(namespace, pod, container), (namespace, pod, "")}:
                unlimited[reason] = unlimited.get(reason, 0) + int(count)
        shared = claims.get(labels[:3], [])
        its = _values(series, CONTAINER_METRIC, labels)
        row = ContainerRow(
            namespace,
            pod,
            container,
            limit=its.get("memory_limit_bytes") or 0,
            granted=_percent(its.get("share_granted_ratio")) or 0,
            ceiling=_percent(its.get("share_ceiling_ratio")) or 0,
            used=its.get("memory_used_bytes"),
            peak=its.get("memory_peak_bytes"),
            measured=its.get("memory_measured_bytes"),
            share=_percent(its.get("share_ratio")),
            busy=_percent(its.get("utilization_ratio")),
            throttled_seconds=its.get("throttled_seconds_total"),
            launches=its.get("launches_total"),
            throttled_launches=its.get("launches_throttled_total"),
            refusals=its.get("memory_refusals_total"),
            processes=its.get("processes") or 0,
            unlimited=unlimited,
            claim=next(((one[1], one[2]) for one in shared), None),
            users=tuple((one[3], one[4]) for one in shared),
        )
        found.setdefault(uuid, []).append(row)
    return {uuid: tuple(sorted(rows, key=lambda one: one.name)) for uuid, rows in found.items()}

"""A node read from its agent's `/metrics`, the page that Prometheus reads. Pure.

Whatever stands there is made fit for a terminal first: names come from whoever makes pods.
"""

import re
from collections.abc import Iterator, Mapping
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
    """Raises NotAnAgent."""
    series = _series(text)
    versions = series.get("gpumanager_build_info", {})
    if not versions:
        raise NotAnAgent("answers, but not as the node agent does: check the port")
    rows = _containers(series)
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
        gpus=tuple(sorted(_gpus(series, rows), key=lambda gpu: (gpu.index, gpu.uuid))),
    )


def _series(text: str) -> Series:
    """Name → labels that tell its series apart → value; raises NotAnAgent."""
    found: dict[str, dict[Labels, float]] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = tuple(printable(sample.labels.get(key, "")) for key in _keys(sample.name))
                found.setdefault(sample.name, {})[labels] = sample.value
    except (ValueError, KeyError, IndexError) as error:
        raise NotAnAgent("answers, but not with metrics: check the port") from error
    return found


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else round(100 * ratio, 9)


def _keys(name: str) -> tuple[str, ...]:
    known = KEYS.get(name)
    if known is not None:
        return known
    if name.startswith(CONTAINER_METRIC):
        return DEVICE
    return ("uuid",) if name.startswith(GPU_METRIC) else ()


def printable(text: str) -> str:
    """Nothing in it moves a cursor or changes a colour."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _containers(series: Series) -> Mapping[str, tuple[ContainerRow, ...]]:
    """By the UUID of the GPU."""
    found: dict[str, list[ContainerRow]] = {}
    users = _users(series)
    for labels in series.get("gpumanager_container_memory_limit_bytes", {}):
        found.setdefault(labels[-1], []).append(_container(series, labels, users))
    return {uuid: tuple(sorted(rows, key=lambda one: one.name)) for uuid, rows in found.items()}


def _users(series: Series) -> Mapping[Labels, tuple[Labels, ...]]:
    """By namespace, pod and container: all containers that share its claim."""
    shared: dict[Labels, list[Labels]] = {}
    for one in series.get("gpumanager_claim_info", {}):
        shared.setdefault(one[:3], []).append(one)
    return {(one[0], *one[3:]): tuple(group) for group in shared.values() for one in group}


def _container(
    series: Series, labels: Labels, users: Mapping[Labels, tuple[Labels, ...]]
) -> ContainerRow:
    def told(name: str) -> float | None:
        return series.get(CONTAINER_METRIC + name, {}).get(labels)

    namespace, pod, container, _ = labels
    shared = users.get(labels[:3], ())
    return ContainerRow(
        namespace,
        pod,
        container,
        limit=told("memory_limit_bytes") or 0,
        granted=_percent(told("share_granted_ratio")) or 0,
        ceiling=_percent(told("share_ceiling_ratio")) or 0,
        used=told("memory_used_bytes"),
        peak=told("memory_peak_bytes"),
        measured=told("memory_measured_bytes"),
        share=_percent(told("share_ratio")),
        busy=_percent(told("utilization_ratio")),
        throttled_seconds=told("throttled_seconds_total"),
        launches=told("launches_total"),
        throttled_launches=told("launches_throttled_total"),
        refusals=told("memory_refusals_total"),
        processes=told("processes") or 0,
        unlimited=_unlimited(series, namespace, pod, container),
        claim=next(((one[1], one[2]) for one in shared), None),
        users=tuple((one[3], one[4]) for one in shared),
    )


def _unlimited(series: Series, namespace: str, pod: str, container: str) -> Mapping[str, int]:
    """With those of which only the pod is known."""
    found: dict[str, int] = {}
    for (*who, reason), count in series.get("gpumanager_container_unlimited_processes", {}).items():
        if count and (*who,) in {(namespace, pod, container), (namespace, pod, "")}:
            found[reason] = found.get(reason, 0) + int(count)
    return found


def _gpus(series: Series, rows: Mapping[str, tuple[ContainerRow, ...]]) -> Iterator[GpuRow]:
    xids: dict[str, int] = {}
    for (uuid, _), count in series.get("gpumanager_gpu_xid_errors_total", {}).items():
        xids[uuid] = xids.get(uuid, 0) + int(count)
    for uuid, name, model, bus_id in series.get("gpumanager_gpu_info", {}):
        yield _gpu(series, (uuid, name, model, bus_id), xids.get(uuid, 0), rows.get(uuid, ()))


def _gpu(
    series: Series, who: tuple[str, str, str, str], xids: int, rows: tuple[ContainerRow, ...]
) -> GpuRow:
    uuid, name, model, bus_id = who

    def told(metric: str) -> float | None:
        return series.get(GPU_METRIC + metric, {}).get((uuid,))

    index = _INDEX.fullmatch(name)
    return GpuRow(
        index=int(index[1]) if index else 0,
        uuid=uuid,
        model=model,
        bus_id=bus_id,
        healthy=bool(told("healthy")),
        memory=told("memory_bytes") or 0,
        memory_granted=told("memory_granted_bytes") or 0,
        cores=_percent(told("cores_granted_ratio")) or 0,
        memory_used=told("memory_used_bytes"),
        busy=_percent(told("utilization_ratio")),
        celsius=told("temperature_celsius"),
        watts=told("power_watts"),
        xids=xids,
        containers=rows,
    )

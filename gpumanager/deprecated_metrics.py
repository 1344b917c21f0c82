"""Metrics that were renamed: for one version each is exported under its old name too.

The new names follow Prometheus' conventions: a ratio is 0 to 1, a duration and a point in time say
so with their unit. Dashboards, rules and alerts ask for the new names only.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

PERCENT: Final = 100.0
DEPRECATED: Final[Mapping[str, tuple[str, float]]] = MappingProxyType(
    {
        "gpumanager_gpu_cores_granted_ratio": ("gpumanager_gpu_cores_granted_percent", PERCENT),
        "gpumanager_gpu_utilization_ratio": ("gpumanager_gpu_utilization_percent", PERCENT),
        "gpumanager_container_share_granted_ratio": (
            "gpumanager_container_share_promised_percent",
            PERCENT,
        ),
        "gpumanager_container_share_ceiling_ratio": (
            "gpumanager_container_share_ceiling_percent",
            PERCENT,
        ),
        "gpumanager_container_share_ratio": ("gpumanager_container_share_percent", PERCENT),
        "gpumanager_container_utilization_ratio": (
            "gpumanager_container_utilization_percent",
            PERCENT,
        ),
        "gpumanager_driver_up": ("gpumanager_driver_answers", 1),
        "gpumanager_kubelet_registered": ("gpumanager_registered", 1),
        "gpumanager_socket_rejected_callers": ("gpumanager_socket_strangers", 1),
        "gpumanager_state_mismatches": ("gpumanager_disagreements", 1),
        "gpumanager_audit_killed": ("gpumanager_audit_ended", 1),
        "gpumanager_extender_request_duration_seconds": ("gpumanager_extender_seconds", 1),
        "gpumanager_extender_is_leader": ("gpumanager_extender_leads", 1),
        "gpumanager_webhook_request_duration_seconds": ("gpumanager_webhook_seconds", 1),
        "gpumanager_webhook_certificate_expiry_timestamp_seconds": (
            "gpumanager_webhook_certificate_end_seconds",
            1,
        ),
    }
)
"""New name → old name, and the factor from a new value to an old one. Counters: no `_total`."""


@dataclass(frozen=True, slots=True, eq=False)
class WithDeprecated:
    """A registry or collector, and its metrics under their old names too."""

    metrics: Collector | CollectorRegistry

    def collect(self) -> Iterator[Metric]:
        yield from with_deprecated(self.metrics.collect())


def with_deprecated(metrics: Iterable[Metric]) -> Iterator[Metric]:
    for metric in metrics:
        yield metric
        if metric.name in DEPRECATED:
            old = copy.copy(metric)
            old.name, factor = DEPRECATED[metric.name]
            old.documentation = f"Deprecated, use {metric.name}"
            old.samples = [
                one._replace(
                    name=old.name + one.name.removeprefix(metric.name),
                    value=round(one.value * factor, 9),
                )
                for one in metric.samples
            ]
            yield old

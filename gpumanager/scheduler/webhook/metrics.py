"""The webhook's own metrics. All series exist from the start."""

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpumanager.scheduler.extender.metrics import TaskCollector
from gpumanager.scheduler.webhook.review import Decision
from gpumanager.supervisor import Supervisor

BUCKETS: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)
ENDPOINTS: Final = ("mutate", "claims", "validate", "validate-claims")
MALFORMED: Final = "malformed"
OUTCOMES: Final = ("allowed", "changed", "refused", "failed", MALFORMED)
"""failed: the object could not be read. malformed: what was sent is no review."""

Gauges = Callable[[], dict[str, float]]
"""By name, without `gpumanager_webhook_`: those of GAUGES that there are now."""
GAUGES: Final = {
    "certificate_expiry_timestamp_seconds": "When the certificate expires, in Unix time.",
    "node_kinds": "Kinds of nodes with GPUs that pods are checked against.",
    "quota_understood": "1 while the ConfigMap of the quotas is read and valid.",
}


class WebhookMetrics:
    """Counts answers; calls `gauges` anew each time. supervisor: of the background tasks."""

    def __init__(self, gauges: Gauges = dict, supervisor: Supervisor | None = None) -> None:
        self._registry = CollectorRegistry()
        reviews = Counter(
            "gpumanager_webhook_reviews",
            "Reviews, by outcome.",
            ("endpoint", "outcome"),
            registry=self._registry,
        )
        seconds = Histogram(
            "gpumanager_webhook_request_duration_seconds",
            "Time to answer a review, without reading it from the connection.",
            ("endpoint",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        pairs = ((endpoint, outcome) for endpoint in ENDPOINTS for outcome in OUTCOMES)
        self._reviews = {pair: reviews.labels(*pair) for pair in pairs}
        self._seconds = {endpoint: seconds.labels(endpoint) for endpoint in ENDPOINTS}
        self._registry.register(_Gauges(gauges))
        self._registry.register(TaskCollector("gpumanager_webhook", supervisor or Supervisor()))

    def took(self, endpoint: str, outcome: str, seconds: float) -> None:
        self._reviews[endpoint, outcome].inc()
        self._seconds[endpoint].observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)


def outcome_of(decision: Decision) -> str:
    if decision.failed:
        return "failed"
    if decision.errors:
        return "refused"
    return "changed" if decision.patch else "allowed"


class _Gauges(Collector):
    def __init__(self, gauges: Gauges) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"gpumanager_webhook_{name}", GAUGES[name], value)

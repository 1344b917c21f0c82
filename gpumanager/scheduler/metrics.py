"""Metrics of the extender and of the webhook. All series exist from the start."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gpumanager.supervisor import Supervisor

VERBS: Final = ("filter", "prioritize", "prioritize_claims", "bind", "preempt")
OUTCOMES: Final = ("answered", "refused", "failed")
"""Of the extender. refused: the request was not one; failed: ours, or the API server's."""
BUCKETS: Final = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
ENDPOINTS: Final = ("mutate", "claims", "validate", "validate-claims")
MALFORMED: Final = "malformed"
REVIEW_OUTCOMES: Final = ("allowed", "changed", "refused", "failed", MALFORMED)
"""failed: the object could not be read. malformed: what was sent is no review."""
WEBHOOK_BUCKETS: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0)
GAUGES: Final = {
    "certificate_expiry_timestamp_seconds": "When the certificate expires, in Unix time.",
    "node_kinds": "Kinds of nodes with GPUs that pods are checked against.",
    "quota_understood": "1 while the ConfigMap of the quotas is read and valid.",
}
"""Of the webhook, by name without `gpumanager_webhook_`."""
TASK_RESTARTS: Final = "Restarts of background tasks after a failure."
SKIPPED_ERRORS: Final = "Errors with single objects, by the task that skipped them."


class RequestMetrics(Collector):
    """Counts what is answered, and how long that takes. `collect` yields the rest.

    counted: `requests`, or `reviews`. label: of the kinds of requests.
    """

    def __init__(
        self,
        component: str,
        *,
        counted: str,
        label: str,
        kinds: Sequence[str],
        outcomes: Sequence[str],
        buckets: Sequence[float],
    ) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            f"gpumanager_{component}_request_duration_seconds",
            f"Time to answer a {counted[:-1]}, without reading it from the connection.",
            (label,),
            buckets=buckets,
            registry=self._registry,
        )
        self._count = Counter(
            f"gpumanager_{component}_{counted}",
            f"{counted.capitalize()}, by outcome.",
            (label, "outcome"),
            registry=self._registry,
        )
        for kind in kinds:
            self._seconds.labels(kind)
            for outcome in outcomes:
                self._count.labels(kind, outcome)

    def took(self, kind: str, outcome: str, seconds: float) -> None:
        self._seconds.labels(kind).observe(seconds)
        self._count.labels(kind, outcome).inc()

    def add(self, more: Collector) -> None:
        """Register another collector."""
        self._registry.register(more)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class Metrics(RequestMetrics):
    """Of the extender. counts: objects in the state. leads: whether this replica leads."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], leads: Callable[[], bool]) -> None:
        super().__init__(
            "extender",
            counted="requests",
            label="verb",
            kinds=VERBS,
            outcomes=OUTCOMES,
            buckets=BUCKETS,
        )
        self._counts = counts
        self._leads = leads
        self.add(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        held = GaugeMetricFamily(
            "gpumanager_extender_objects", "Objects in the extender's cache.", labels=("kind",)
        )
        for kind, count in self._counts().items():
            held.add_metric((kind,), count)
        yield held
        yield GaugeMetricFamily(
            "gpumanager_extender_is_leader",
            "1 on the replica that is the leader.",
            float(self._leads()),
        )


class WebhookMetrics(RequestMetrics):
    """Of the webhook. gauges: called anew each time; those of GAUGES that there are now.
    supervisor: of the background tasks."""

    def __init__(
        self,
        gauges: Callable[[], dict[str, float]] = dict,
        supervisor: Supervisor | None = None,
    ) -> None:
        super().__init__(
            "webhook",
            counted="reviews",
            label="endpoint",
            kinds=ENDPOINTS,
            outcomes=REVIEW_OUTCOMES,
            buckets=WEBHOOK_BUCKETS,
        )
        self._gauges = gauges
        self.add(self)
        self.add(TaskCollector("gpumanager_webhook", supervisor or Supervisor()))

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"gpumanager_webhook_{name}", GAUGES[name], value)


class TaskCollector(Collector):
    """Restarts of background tasks. prefix: of the metrics' names."""

    def __init__(self, prefix: str, supervisor: Supervisor) -> None:
        self._prefix = prefix
        self._supervisor = supervisor

    def collect(self) -> Iterator[CounterMetricFamily]:
        of = self._supervisor
        for name, text, counts in (
            ("background_task_restarts", TASK_RESTARTS, of.restarts),
            ("skipped_errors", SKIPPED_ERRORS, of.skipped.counts),
        ):
            family = CounterMetricFamily(f"{self._prefix}_{name}", text, labels=("task",))
            for task, count in counts.items():
                family.add_metric((task,), count)
            yield family

"""Metrics of the extender and of the webhook. All series exist from the start."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
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
TASKS: Final = {
    "background_task_restarts": "Restarts of background tasks after a failure.",
    "skipped_errors": "Errors with single objects, by the task that skipped them.",
}


class RequestMetrics(Collector):
    """Counts what is answered, and how long that takes; `collect` yields the rest.

    supervisor: of the background tasks.
    """

    component: ClassVar[str]
    counted: ClassVar[str]
    label: ClassVar[str]
    """Of the kinds of requests."""
    kinds: ClassVar[Sequence[str]]
    outcomes: ClassVar[Sequence[str]]
    buckets: ClassVar[Sequence[float]]

    def __init__(self, supervisor: Supervisor | None = None) -> None:
        self._prefix = f"gpumanager_{self.component}"
        self._supervisor = supervisor or Supervisor()
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            f"{self._prefix}_request_duration_seconds",
            f"Time to answer a {self.counted[:-1]}, without reading it from the connection.",
            (self.label,),
            buckets=self.buckets,
            registry=self._registry,
        )
        self._count = Counter(
            f"{self._prefix}_{self.counted}",
            f"{self.counted.capitalize()}, by outcome.",
            (self.label, "outcome"),
            registry=self._registry,
        )
        for kind in self.kinds:
            self._seconds.labels(kind)
            for outcome in self.outcomes:
                self._count.labels(kind, outcome)
        self.add(self)

    def took(self, kind: str, outcome: str, seconds: float) -> None:
        self._seconds.labels(kind).observe(seconds)
        self._count.labels(kind, outcome).inc()

    def add(self, more: Collector) -> None:
        """Register another collector."""
        self._registry.register(more)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield what background tasks met with."""
        counts = self._supervisor.restarts, self._supervisor.skipped.counts
        for (name, text), by_task in zip(TASKS.items(), counts, strict=True):
            family = CounterMetricFamily(f"{self._prefix}_{name}", text, labels=("task",))
            for task, count in by_task.items():
                family.add_metric((task,), count)
            yield family


class Metrics(RequestMetrics):
    """Of the extender. counts: objects in the state. leads: whether this replica leads."""

    component, counted, label = "extender", "requests", "verb"
    kinds, outcomes, buckets = VERBS, OUTCOMES, BUCKETS

    def __init__(
        self,
        counts: Callable[[], Mapping[str, int]],
        leads: Callable[[], bool],
        supervisor: Supervisor | None = None,
    ) -> None:
        self._counts = counts
        self._leads = leads
        super().__init__(supervisor)

    def collect(self) -> Iterator[Metric]:
        yield from super().collect()
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
    """Of the webhook. gauges: called anew each time; those of GAUGES that there are now."""

    component, counted, label = "webhook", "reviews", "endpoint"
    kinds, outcomes, buckets = ENDPOINTS, REVIEW_OUTCOMES, WEBHOOK_BUCKETS

    def __init__(
        self, gauges: Callable[[], dict[str, float]] = dict, supervisor: Supervisor | None = None
    ) -> None:
        self._gauges = gauges
        super().__init__(supervisor)

    def collect(self) -> Iterator[Metric]:
        yield from super().collect()
        for name, value in self._gauges().items():
            yield GaugeMetricFamily(f"gpumanager_webhook_{name}", GAUGES[name], value)

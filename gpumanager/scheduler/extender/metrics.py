"""The extender's own metrics. All series exist from the start."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gpumanager.supervisor import Supervisor

BUCKETS: Final = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0)
VERBS: Final = ("filter", "prioritize", "prioritize_claims", "bind", "preempt")
OUTCOMES: Final = ("answered", "refused", "failed")
"""refused: the request was not one; failed: ours, or the API server's."""


class Metrics:
    """counts: objects in the state. leads: whether this replica leads."""

    def __init__(self, counts: Callable[[], Mapping[str, int]], leads: Callable[[], bool]) -> None:
        self._registry = CollectorRegistry()
        self._seconds = Histogram(
            "gpumanager_extender_request_duration_seconds",
            "Time to answer a request, without reading it from the connection.",
            ("verb",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._requests = Counter(
            "gpumanager_extender_requests",
            "Requests, by outcome.",
            ("verb", "outcome"),
            registry=self._registry,
        )
        self._took = {verb: self._seconds.labels(verb) for verb in VERBS}
        self._outcome = {
            (verb, outcome): self._requests.labels(verb, outcome)
            for verb in VERBS
            for outcome in OUTCOMES
        }
        self._registry.register(_State(counts, leads))

    def took(self, verb: str, outcome: str, seconds: float) -> None:
        self._took[verb].observe(seconds)
        self._outcome[verb, outcome].inc()

    def add(self, more: Collector) -> None:
        """Register another collector."""
        self._registry.register(more)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _State(Collector):
    def __init__(self, counts: Callable[[], Mapping[str, int]], leads: Callable[[], bool]) -> None:
        self._counts = counts
        self._leads = leads

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


class TaskCollector(Collector):
    """Restarts of background tasks. prefix: of the metrics' names."""

    def __init__(self, prefix: str, supervisor: Supervisor) -> None:
        self._prefix = prefix
        self._supervisor = supervisor

    def collect(self) -> Iterator[CounterMetricFamily]:
        restarts = CounterMetricFamily(
            f"{self._prefix}_background_task_restarts",
            "Restarts of background tasks after a failure.",
            labels=("task",),
        )
        for task, count in self._supervisor.restarts.items():
            restarts.add_metric((task,), count)
        yield restarts
        skipped = CounterMetricFamily(
            f"{self._prefix}_skipped_errors",
            "Errors with single objects, by the task that skipped them.",
            labels=("task",),
        )
        for task, count in self._supervisor.skipped.counts.items():
            skipped.add_metric((task,), count)
        yield skipped

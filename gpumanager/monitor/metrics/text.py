"""A page of metrics as Prometheus reads it, by its own client library."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpumanager.deprecated_metrics import with_deprecated
from gpumanager.monitor.metrics.families import FAMILIES
from gpumanager.monitor.metrics.rows import Page

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """One page, as a collector of the library, which wants to hash it."""

    page: Page

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = kind(family.name, family.help, labels=family.labels)
            for labels, value in family.rows(self.page):
                metric.add_metric(labels, float(value))
            yield from with_deprecated([metric])
        for timed in self.page.latencies.seconds.collect():
            timed.samples = [one for one in timed.samples if not one.name.endswith("_created")]
            yield timed


def render(page: Page) -> bytes:
    """Return the page as text; may take a while with many containers: not for the loop."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected(page))
    return generate_latest(registry)

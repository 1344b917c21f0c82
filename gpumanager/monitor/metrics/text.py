"""A page of metrics as Prometheus reads it, by its own client library."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from gpumanager.deprecated_metrics import with_deprecated
from gpumanager.monitor.metrics.families import FAMILIES
from gpumanager.monitor.metrics.rows import Family, Page

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """One page, as a collector of the library, which wants to hash it."""

    page: Page

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            yield from with_deprecated([_metric(family, self.page)])
        for metric in self.page.latencies.seconds.collect():
            metric.samples = [one for one in metric.samples if not one.name.endswith("_created")]
            yield metric


def render(page: Page) -> bytes:
    """May take a while with many containers: not for the loop."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected(page))
    return generate_latest(registry)


def _metric(family: Family, page: Page) -> Metric:
    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.rows(page):
        metric.add_metric(labels, float(value))
    return metric

"""A page of metrics as Prometheus reads it, by its own client library.

The library is imported with the first page: an agent that nobody has asked yet has not paid for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpumanager.monitor.families import FAMILIES, RPC_SECONDS
from gpumanager.monitor.rows import Family, Page

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """One page, as a collector of the library, which wants to hash it."""

    page: Page

    def collect(self) -> Iterator["Metric"]:
        for family in FAMILIES:
            yield _metric(family, self.page)
        yield _histograms(self.page)


def render(page: Page) -> bytes:
    """May take a while with many containers: not for the loop."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected(page))
    return generate_latest(registry)


def _metric(family: Family, page: Page) -> "Metric":
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = kind(family.name, family.help, labels=family.labels)
    for labels, value in family.rows(page):
        metric.add_metric(labels, float(value))
    return metric


def _histograms(page: Page) -> "Metric":
    from prometheus_client.metrics_core import HistogramMetricFamily

    metric = HistogramMetricFamily(RPC_SECONDS.name, RPC_SECONDS.help, labels=RPC_SECONDS.labels)
    for labels, histogram in page.latencies.histograms.items():
        metric.add_metric(labels, list(histogram.buckets()), histogram.seconds)
    return metric

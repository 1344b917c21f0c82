"""A page of metrics as Prometheus reads it, by its own client library."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric

from gpumanager.monitor.metrics.families import FAMILIES, KEPT_FAMILIES
from gpumanager.monitor.metrics.rows import Family, Page

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class _Collector:
    page: Page
    families: tuple[Family, ...]

    def collect(self) -> Iterator[Metric]:
        for family in self.families:
            metric = Metric(family.name, family.help, family.kind)
            name = f"{family.name}_total" if family.kind == "counter" else family.name
            for values, value in family.rows(self.page):
                pairs = zip(family.labels, values, strict=True)
                metric.add_sample(name, {key: text for key, text in pairs if text}, value)
            yield metric
        for timed in self.page.latencies.seconds.collect() if self.families is FAMILIES else ():
            timed.samples = [one for one in timed.samples if not one.name.endswith("_created")]
            yield timed


def render(page: Page) -> bytes:
    """Return the page as text; may take a while with many containers: not for the loop."""
    return generate_latest(_Collector(page, FAMILIES))


def render_kept(page: Page) -> bytes:
    """Return gpu-manager's own metrics."""
    return generate_latest(_Collector(page, KEPT_FAMILIES))

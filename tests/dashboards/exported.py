"""What there is to ask Prometheus for: every metric that our programs export, with its labels.

The agent's come from the table that `/metrics` is made of; extender and webhook are made to tell.
"""

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from prometheus_client.parser import text_string_to_metric_families as parse

from gpumanager.monitor.metrics.families import FAMILIES, RPC_SECONDS
from gpumanager.monitor.metrics.rows import Family
from gpumanager.scheduler.metrics import GAUGES, Metrics, WebhookMetrics
from gpumanager.scheduler.quota.limits import read_quotas
from gpumanager.scheduler.quota.rules import Known, QuotaCollector, Usage
from gpumanager.supervisor import Supervisor

Labels = frozenset[str]

TARGET: Final = frozenset({"job", "instance", "namespace", "pod"})
"""What Prometheus adds to each series, where the series does not have it."""

OF_AGENTS: Final = TARGET | {"node"}

OF_PROMETHEUS: Final = {
    "up": OF_AGENTS,
    "ALERTS": OF_AGENTS | {"alertname", "alertstate", "severity", "container", "gpu"},
}


def every() -> Mapping[str, Labels]:
    """By the names of series: counters with _total, histograms with _bucket, _sum and _count."""
    return MappingProxyType({**OF_PROMETHEUS, **_agent(), **_told()})


def _agent() -> Mapping[str, Labels]:
    every = (*FAMILIES, RPC_SECONDS)
    return {name: OF_AGENTS | labels for one in every for name, labels in series(one)}


def series(family: Family) -> list[tuple[str, Labels]]:
    labels = frozenset(family.labels)
    if family.kind == "counter":
        return [(f"{family.name}_total", labels)]
    if family.kind == "gauge":
        return [(family.name, labels)]
    return [(f"{family.name}_{end}", labels) for end in ("sum", "count")] + [
        (f"{family.name}_bucket", labels | {"le"})
    ]


def _told() -> Mapping[str, Labels]:
    """As extender and webhook tell it; a counter's time of making is not asked for."""
    found = defaultdict[str, Labels](frozenset)
    for page in (_extender(), _webhook()):
        for family in parse(page):
            for sample in family.samples:
                found[sample.name] |= TARGET | sample.labels.keys()
    return {name: labels for name, labels in found.items() if not name.endswith("_created")}


def _extender() -> str:
    counts = dict.fromkeys(("nodes", "pods", "assumed"), 1)
    metrics = Metrics(lambda: counts, lambda: True, _supervisor())
    quotas = read_quotas('{"team": {"quota": {"A100": 2}}}')
    metrics.add(QuotaCollector(lambda: Known(quotas), Usage()))
    return metrics.text().decode()


def _webhook() -> str:
    return WebhookMetrics(lambda: dict.fromkeys(GAUGES, 1.0), _supervisor()).text().decode()


def _supervisor() -> Supervisor:
    """With a task, so that its series have their labels."""
    found = Supervisor()
    found.restarts["task"] += 1
    found.skipped.counts["task"] += 1
    return found

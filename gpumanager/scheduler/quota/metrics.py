"""Metrics of quotas and their usage."""

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from gpumanager.scheduler.quota.limits import Usage
from gpumanager.scheduler.quota.rules import Known
from gpumanager.units import CORES_PER_GPU


class QuotaCollector(Collector):
    """known: asked anew each time. usage: of the rules."""

    def __init__(self, known: Callable[[], Known], usage: Usage) -> None:
        self._known = known
        self._usage = usage

    def collect(self) -> Iterator[GaugeMetricFamily]:
        known = self._known()
        yield GaugeMetricFamily(
            "gpumanager_extender_quota_understood",
            "1 while the ConfigMap of the quotas is valid; else the last valid one counts.",
            float(known.read and not known.trouble),
        )
        gpus = GaugeMetricFamily(
            "gpumanager_extender_quota_gpus",
            "GPUs of a model that a namespace may use, and those it uses; shares by their cores.",
            labels=("namespace", "model", "kind"),
        )
        for namespace, quota in (known.quotas or {}).items():
            for model, limit in (quota.gpus or {}).items():
                used = self._usage.of(namespace, model) / CORES_PER_GPU
                gpus.add_metric((namespace, model, "limit"), limit)
                gpus.add_metric((namespace, model, "used"), used)
        yield gpus

"""How long a real kubelet stood still in Allocate, by its own clock: one of its metrics."""

import ssl
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families as parse

from tests.e2e.node.node_process import SECONDS
from tests.e2e.node.real_node import KUBELET_PORT

METRIC: Final = "kubelet_device_plugin_alloc_duration_seconds"
SHORT: Final = "0.005"
"""Seconds of its first bucket, as a label has it."""


@dataclass(frozen=True, slots=True)
class Waited:
    """seconds: of all calls together. short: calls that took 5 ms at most."""

    calls: int = 0
    seconds: float = 0.0
    short: int = 0

    def since(self, before: "Waited") -> "Waited":
        return Waited(
            self.calls - before.calls, self.seconds - before.seconds, self.short - before.short
        )

    def __str__(self) -> str:
        mean = 1000 * self.seconds / self.calls if self.calls else 0.0
        return f"{self.calls} Allocates, mean {mean:.2f} ms, {self.short} within 5 ms"


def waited(resource: str, token: Path) -> Waited:
    """Since the kubelet started. token: of whoever may read the kubelet's metrics."""
    parts = _parts(resource, _metrics(token))
    return Waited(int(parts.get("_count", 0)), parts.get("_sum", 0.0), int(parts.get("_bucket", 0)))


def _parts(resource: str, text: str) -> dict[str, float]:
    return {
        one.name.removeprefix(METRIC): one.value
        for family in parse(text)
        if family.name == METRIC
        for one in family.samples
        if one.labels["resource_name"] == resource and one.labels.get("le", SHORT) == SHORT
    }


def _metrics(token: Path) -> str:
    words = {"Authorization": f"Bearer {token.read_text().strip()}"}
    request = urllib.request.Request(f"https://127.0.0.1:{KUBELET_PORT}/metrics", headers=words)
    own = ssl._create_unverified_context()  # made by the kubelet itself
    with urllib.request.urlopen(request, timeout=SECONDS, context=own) as page:
        return str(page.read().decode())

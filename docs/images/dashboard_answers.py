"""What Prometheus answers to the queries of a panel, over its HTTP API."""

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Panel = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prometheus:
    """A server. start, end: seconds since the epoch, the time that is looked at."""

    url: str
    start: float
    end: float
    step: int
    chosen: Mapping[str, str]

    def wait(self, seconds: float = 60) -> None:
        """Until it answers; raises OSError."""
        until = time.monotonic() + seconds
        while True:
            try:
                self._get("query", query="vector(1)", time=self.end)
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.3)
            else:
                return

    def answers(self, panel: Panel) -> Mapping[str, list[Mapping[str, Any]]]:
        """By the refId of each target its series: labels, name, and points of time and value."""
        return {one["refId"]: list(self._target(one)) for one in panel.get("targets", ())}

    def instant(self, expr: str) -> list[dict[str, str]]:
        """Labels of what there is at the end."""
        return [one["metric"] for one in self._get("query", query=expr, time=self.end)]

    def _target(self, target: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        expr = re.sub(r"\$(\w+)", lambda found: self.chosen[found[1]], target["expr"])
        if target["range"]:
            times = {"start": self.start, "end": self.end, "step": self.step}
            found = self._get("query_range", query=expr, **times)
        else:
            found = self._get("query", query=expr, time=self.end)
        for one in found:
            points = one["values"] if "values" in one else [one["value"]]
            told = [(float(at), float(value)) for at, value in points if value != "NaN"]
            if told:
                labels = {key: text for key, text in one["metric"].items() if key != "__name__"}
                yield {"labels": labels, "name": _name(target, one["metric"]), "points": told}

    def _get(self, path: str, **words: object) -> Any:
        asked = urllib.parse.urlencode({key: str(value) for key, value in words.items()})
        address = f"{self.url}/api/v1/{path}?{asked}"
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - our own
            return json.load(answer)["data"]["result"]


def _name(target: Mapping[str, Any], labels: Mapping[str, str]) -> str:
    legend = target["legendFormat"]
    if legend == "__auto":
        return ", ".join(labels.values()) or "value"
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), legend)

"""The chart's rules and dashboards, and the queries in them."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.dashboards.exported import Labels, every
from tests.dashboards.promql import Reader

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "charts/gpu-manager"
RULES: Final = sorted((CHART / "rules").glob("*.yaml"))
BOARDS: Final = sorted((CHART / "dashboards").glob("*.json"))
RUNBOOKS: Final = ROOT / "docs/runbooks"


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a panel. legend: as it is written."""

    where: str
    expr: str
    legend: str
    panel: Mapping[str, Any]


def rules() -> Iterator[Mapping[str, Any]]:
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]


def recorded() -> Mapping[str, str]:
    """Each recording rule's expression, in the order in which they build on each other."""
    return {one["record"]: one["expr"] for one in rules() if "record" in one}


def alerts() -> list[Mapping[str, Any]]:
    return [one for one in rules() if "alert" in one]


def boards() -> Mapping[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in BOARDS}


def panels(board: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """All of them, rows and what is folded into rows too."""
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def asked() -> Iterator[Asked]:
    for name, board in boards().items():
        for panel in panels(board):
            for target in panel.get("targets", ()):
                where = f"{name}, {panel['title']}, {target['refId']}"
                yield Asked(where, target["expr"], target["legendFormat"], panel)


@cache
def metrics() -> Mapping[str, Labels]:
    """What can be asked for: what programs tell, and what recording rules make of it."""
    known = dict(every())
    for name, expr in recorded().items():
        known[name] = Reader(known).labels(expr) or frozenset()
    return known


def names_in(text: str) -> set[str]:
    """What looks like a metric of ours, or a recording of one."""
    return set(re.findall(r"\b(?:[a-z_]+:)?gpumanager_[a-z0-9_]+(?::[a-z0-9_]+)?\b", text))

"""The figures of a run, for people and as JSON."""

import statistics
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from extender.changes import ChangeCost
from extender.load import Times

PODS_BAR: Final = "250, every node 120"
MS_BAR: Final = 20.0
MS: Final = 1e3


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to name nodes, and how it went: bound while others are asked about, and apart from
    that. Processor seconds of all pods of the former."""

    name: str
    times: Times
    apart: Times
    extender: float
    caller: float
    api: float

    def as_json(self) -> dict[str, Any]:
        pods = sorted(self.times.pods)
        count = max(1, len(pods))
        return {
            "setting": self.name,
            "pods": len(pods),
            "names_per_filter": self.times.named // count,
            "pods_per_second": _rate(self.times),
            "apart_pods": len(self.apart.pods),
            "apart_pods_per_second": _rate(self.apart),
            "apart_filter_ms": _spread(self.apart.filter),
            "apart_prioritize_ms": _spread(self.apart.prioritize),
            "apart_both_ms": _spread(self.apart.pods),
            "pods_per_second_with_bind": round(len(pods) / (self.times.whole or 1), 1),
            "filter_ms": _spread(self.times.filter),
            "prioritize_ms": _spread(self.times.prioritize),
            "both_ms": _spread(pods),
            "answered_bytes_per_filter": self.times.answered_bytes // count,
            "extender_ms_of_processor_per_pod": round(self.extender * MS / count, 2),
            "caller_ms_of_processor_per_pod": round(self.caller * MS / count, 2),
            "api_ms_of_processor_per_pod": round(self.api * MS / count, 2),
            "bound": self.times.bound + self.apart.bound,
            "refused": self.times.refused + self.apart.refused,
            "nowhere": self.times.nowhere + self.apart.nowhere,
        }


def _rate(times: Times) -> float:
    """Pods a second, one after another, by the time of their two questions."""
    return round(len(times.pods) / (sum(times.pods) or 1), 1)


def _spread(seconds: list[float]) -> dict[str, float]:
    """Milliseconds."""
    ordered = sorted(seconds) or [0.0]
    return {
        "p50": round(statistics.median(ordered) * MS, 3),
        "p99": round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * MS, 3),
        "most": round(ordered[-1] * MS, 3),
    }


@dataclass(frozen=True, slots=True)
class Figures:
    """machine, load: what it was measured on. Seconds to be ready, MiB resident."""

    machine: str
    load: str
    nodes: int
    placed_before: int
    settings: tuple[Setting, ...]
    started: float
    restarted: float
    resident: float
    resident_restarted: float
    pods: int
    changes: tuple[ChangeCost, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "load": self.load,
            "nodes": self.nodes,
            "placed_before": self.placed_before,
            "settings": [one.as_json() for one in self.settings],
            "ready_seconds": round(self.started, 2),
            "restart_seconds": round(self.restarted, 2),
            "resident_mib": round(self.resident, 1),
            "resident_mib_restarted": round(self.resident_restarted, 1),
            "pods": self.pods,
            "changes": [
                {"nodes": c.nodes, "taken_us": round(c.taken, 1), "judged_us": round(c.judged, 1)}
                for c in self.changes
            ],
        }


def show(figures: Figures, console: Console) -> None:
    console.print(f"{figures.machine}; load {figures.load}")
    console.print(
        f"{figures.nodes:,} nodes of 8 GPUs, {figures.pods:,} pods placed in the end; caller, API "
        "server and extender share the machine\n"
    )
    console.print(_speeds(figures))
    console.print(
        f"\nready after {figures.started:.1f} s with {figures.placed_before:,} pods, "
        f"{figures.resident:.0f} MiB resident after the load; restarted: "
        f"{figures.restarted:.1f} s, {figures.resident_restarted:.0f} MiB"
    )
    if figures.changes:
        console.print(_changes(figures.changes))


def _speeds(figures: Figures) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("filter + prioritize, one pod after another")
    for setting in figures.settings:
        table.add_column(setting.name, justify="right")
    said = [one.as_json() for one in figures.settings]
    rows = [
        ("names a filter", "{names_per_filter:,}"),
        ("[bold]each bound before the next is asked about", ""),
        (
            f"pods/s (bar {PODS_BAR})",
            "{apart_pods_per_second:,.0f}",
        ),
        ("p50, ms", "{apart_both_ms[p50]:.2f}"),
        (f"p99, ms (bar {MS_BAR:.0f})", "{apart_both_ms[p99]:.2f}"),
        ("most, ms", "{apart_both_ms[most]:.1f}"),
        ("of it filter, p50", "{apart_filter_ms[p50]:.2f}"),
        ("of it prioritize, p50", "{apart_prioritize_ms[p50]:.2f}"),
        ("[bold]bound while others are asked about", ""),
        (f"pods/s (bar {PODS_BAR})", "{pods_per_second:,.0f}"),
        ("p50, ms", "{both_ms[p50]:.2f}"),
        (f"p99, ms (bar {MS_BAR:.0f})", "{both_ms[p99]:.2f}"),
        ("most, ms", "{both_ms[most]:.1f}"),
        ("of it filter, p50", "{filter_ms[p50]:.2f}"),
        ("of it prioritize, p50", "{prioritize_ms[p50]:.2f}"),
        ("bytes of a filter's answer", "{answered_bytes_per_filter:,}"),
        ("pods/s with bind", "{pods_per_second_with_bind:,.0f}"),
        ("processor, ms a pod: extender", "{extender_ms_of_processor_per_pod:.2f}"),
        ("caller", "{caller_ms_of_processor_per_pod:.2f}"),
        ("API server", "{api_ms_of_processor_per_pod:.2f}"),
        ("bound, refused, nowhere", "{bound:,}, {refused}, {nowhere}"),
    ]
    for title, form in rows:
        table.add_row(title, *(form.format(**one) for one in said))
    return table


def _changes(costs: tuple[ChangeCost, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("a change to a node", "taken in, µs", "judged anew for one shape, µs"):
        table.add_column(title, justify="right" if "µs" in title else "left")
    for cost in costs:
        table.add_row(f"of {cost.nodes:,}", f"{cost.taken:.0f}", f"{cost.judged:.1f}")
    return table

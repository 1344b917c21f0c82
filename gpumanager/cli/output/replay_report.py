"""What `gpumanager replay` prints for people: allocation by policy, and by model of GPU."""

from collections.abc import Iterator, Sequence
from statistics import mean, pstdev
from typing import TYPE_CHECKING, Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from gpumanager.cli.output.console import OutputConsole

if TYPE_CHECKING:
    from gpumanager.cli.replay import Run

ABREAST: Final = 4
"""Policies whose names fit beside each other on 80 columns."""


def by_policy(runs: "Sequence[Run]") -> "list[tuple[str, list[Run]]]":
    """In the order in which they were asked for."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.policy, []).append(run)
    return list(grouped.items())


def print_report(runs: "Sequence[Run]") -> None:
    console = OutputConsole()
    console.print(_policies(runs))
    grouped = by_policy(runs)
    for start in range(0, len(grouped), ABREAST):
        console.print(_models(grouped[start : start + ABREAST]))


def _policies(runs: "Sequence[Run]") -> Table:
    load = 100 * runs[0].load
    table = Table(box=SIMPLE_HEAD, title="GPUs given away, percent", pad_edge=False)
    table.add_column("policy")
    for column in ("seeds", "at 100 %", f"at {load:g} %", "sd", "placed", "decisions/s"):
        table.add_column(column, justify="right")
    for name, of_policy in by_policy(runs):
        table.add_row(name, str(len(of_policy)), *_figures(of_policy))
    return table


def _figures(runs: "Sequence[Run]") -> Iterator[str]:
    full = [percent for run in runs if (percent := run.outcome.at(100)) is not None]
    last = [run.outcome.allocation_percent for run in runs]
    pods = sum(run.outcome.pods for run in runs)
    yield f"{mean(full):.2f}" if full else "-"
    yield f"{mean(last):.2f}"
    yield f"{pstdev(last):.2f}"
    yield f"{sum(run.outcome.placed for run in runs)} of {pods}"
    yield f"{pods / sum(run.seconds for run in runs):.0f}"


def _models(grouped: "Sequence[tuple[str, list[Run]]]") -> Table:
    table = Table(box=SIMPLE_HEAD, title="by model of GPU, percent", pad_edge=False)
    table.add_column("model")
    table.add_column("GPUs", justify="right")
    for name, _ in grouped:
        table.add_column(name, justify="right")
    for model, (gpus, _) in grouped[0][1][0].outcome.models.items():
        cells = (f"{_mean_of(model, of_policy):.2f}" for _, of_policy in grouped)
        table.add_row(model, str(gpus), *cells)
    return table


def _mean_of(model: str, runs: "Sequence[Run]") -> float:
    return mean(run.outcome.models[model][1] for run in runs if model in run.outcome.models)

"""What `gpumanager replay` prints for people: allocation by policy, and by model of GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, pstdev
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.table import Table

from gpumanager.cli.output.console import OutputConsole
from gpumanager.sim.trace.outcome import ReplayOutcome

ABREAST: Final = 4
"""Policies whose names fit beside each other on 80 columns."""


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one order of the pods. seconds: that it took to decide."""

    policy: str
    seed: int
    load: float
    outcome: ReplayOutcome
    seconds: float


def by_policy(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Group runs by policy, in the order in which they were asked for."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.policy, []).append(run)
    return list(grouped.items())


def print_report(runs: Sequence[Run]) -> None:
    console, grouped = OutputConsole(), by_policy(runs)
    table = Table(box=SIMPLE_HEAD, title="GPUs given away, percent", pad_edge=False)
    table.add_column("policy")
    load = f"at {100 * runs[0].load:g} %"
    for column in ("seeds", "at 100 %", load, "sd", "placed", "decisions/s"):
        table.add_column(column, justify="right")
    for name, of_policy in grouped:
        full = [percent for run in of_policy if (percent := run.outcome.at(100)) is not None]
        last = [run.outcome.allocation_percent for run in of_policy]
        pods = sum(run.outcome.pods for run in of_policy)
        table.add_row(
            name,
            str(len(of_policy)),
            f"{mean(full):.2f}" if full else "-",
            f"{mean(last):.2f}",
            f"{pstdev(last):.2f}",
            f"{sum(run.outcome.placed for run in of_policy)} of {pods}",
            f"{pods / sum(run.seconds for run in of_policy):.0f}",
        )
    console.print(table)
    for start in range(0, len(grouped), ABREAST):
        abreast = grouped[start : start + ABREAST]
        table = Table(box=SIMPLE_HEAD, title="by model of GPU, percent", pad_edge=False)
        table.add_column("model")
        for column in ("GPUs", *(name for name, _ in abreast)):
            table.add_column(column, justify="right")
        for model, (gpus, _) in abreast[0][1][0].outcome.models.items():
            known = [
                [one.outcome.models[model][1] for one in some if model in one.outcome.models]
                for _, some in abreast
            ]
            table.add_row(model, str(gpus), *(f"{mean(percents):.2f}" for percents in known))
        console.print(table)

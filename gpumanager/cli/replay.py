"""`gpumanager replay`: a trace of a GPU cluster, placed by the policies that the scheduler has.

Pods are shuffled by the seed and inflated to the load; one that fits nowhere is dropped; none
leaves. Among equally good nodes chance decides, or with `--ties names` their names.
"""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, pstdev
from types import MappingProxyType
from typing import Final

import click
from rich.box import SIMPLE_HEAD
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from gpumanager.cli.output.console import OutputConsole
from gpumanager.errors import InputError
from gpumanager.placement import policies
from gpumanager.placement.slice_score import SliceScore
from gpumanager.placement.values import FreeNode
from gpumanager.sim.trace.chart import chart, mean_curve
from gpumanager.sim.trace.loader import read_nodes, read_pods
from gpumanager.sim.trace.outcome import Recorder, ReplayOutcome, Step
from gpumanager.sim.trace.replay import Replay
from gpumanager.sim.trace.synthetic import MIXES, make_nodes, make_pods
from gpumanager.sim.trace.workload import TracePod, arrange

POLICIES: Final = MappingProxyType({**policies.POLICIES, "claims": SliceScore()})
"""Those of the scheduler; `claims`: where GPUs are asked for by claims."""
FULL: Final = 100.0
LINE_SECONDS: Final = 5.0
"""Between two lines of progress where standard error is no terminal."""
LARGEST_LOAD: Final = 10.0
ABREAST: Final = 4
"""Policies whose names fit beside each other on 80 columns."""
CSV: Final = click.Path(path_type=Path)


@dataclass(frozen=True, slots=True)
class Run:
    """One policy on one order of the pods. seconds: that it took to decide."""

    policy: str
    seed: int
    load: float
    outcome: ReplayOutcome
    seconds: float


@click.command("replay")
@click.option("--pods", "pods_path", metavar="CSV", type=CSV, help="Pods of the trace.")
@click.option("--nodes", "nodes_path", metavar="CSV", type=CSV, help="Nodes of the trace.")
@click.option(
    "--synthetic",
    metavar="MIX",
    type=click.Choice(list(MIXES)),
    help=f"Instead of a trace, make one up: {', '.join(MIXES)}.",
)
@click.option(
    "--synthetic-nodes",
    "count",
    metavar="N",
    type=click.IntRange(1, 100_000),
    default=200,
    show_default=True,
    help="How many nodes to make up.",
)
@click.option(
    "--policy",
    "names",
    metavar="NAME",
    multiple=True,
    default=(policies.DEFAULT_POLICY,),
    show_default=True,
    type=click.Choice(list(POLICIES)),
    help=f"One of {', '.join(POLICIES)}. Repeatable.",
)
@click.option(
    "--seed",
    "seeds",
    metavar="N",
    multiple=True,
    type=int,
    default=(42,),
    show_default=True,
    help="Seed of the pods' order, of pods added to reach the load, and of ties. Repeatable.",
)
@click.option(
    "--load",
    metavar="FACTOR",
    type=click.FloatRange(0, LARGEST_LOAD, min_open=True),
    default=1.3,
    show_default=True,
    help="GPUs that all pods request together, per GPU of the nodes.",
)
@click.option(
    "--ties",
    type=click.Choice(["random", "names"]),
    default="random",
    show_default=True,
    help="Which of equally good nodes gets the pod.",
)
@click.option(
    "--plot", metavar="SVG", type=CSV, help="Write a plot of allocation against load to this file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON: one line for each run.")
def command(  # noqa: PLR0917 - one for each option
    pods_path: Path | None,
    nodes_path: Path | None,
    synthetic: str | None,
    count: int,
    names: Sequence[str],
    seeds: Sequence[int],
    load: float,
    ties: str,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Replay a GPU cluster trace against the placement policies."""
    if math.isnan(load):
        raise click.BadParameter("write a number, not nan", param_hint="--load")
    if plot is not None:
        draw(plot, ())  # rather now than after minutes of work
    runs = []
    for seed in seeds:
        nodes, pods = read_trace(pods_path, nodes_path, synthetic, count, seed)
        workload = arrange(nodes, pods, load, seed)
        for name in names:
            replay = Replay(workload, POLICIES[name], seed, names_decide=ties == "names")
            run = run_replay(replay, name, load)
            runs.append(run)
            if as_json:
                click.echo(json.dumps(as_fields(run)))
    if plot is not None:
        draw(plot, runs)
    if not as_json:
        print_report(runs)


def read_trace(
    pods: Path | None, nodes: Path | None, synthetic: str | None, count: int, seed: int
) -> tuple[tuple[FreeNode, ...], tuple[TracePod, ...]]:
    """Return nodes and pods, from files or made up; raises a usage error where it is neither."""
    if synthetic is not None:
        if pods or nodes:
            raise click.UsageError("--synthetic makes up a trace: remove --pods and --nodes")
        made = make_nodes(count, seed)
        return made, make_pods(made, MIXES[synthetic], seed)
    if pods is None or nodes is None:
        raise click.UsageError("give a trace with --pods and --nodes, or make one: --synthetic")
    return read_nodes(nodes), read_pods(pods)


def run_replay(
    replay: Replay,
    name: str,
    load: float,
    *,
    steps: Iterable[Step] | None = None,
    recorder: Recorder | None = None,
    total: int | None = None,
) -> Run:
    """Run it to its end and show how far it is. steps, recorder, total: of another procedure."""
    recorder = recorder or Recorder(replay.workload)
    title, began = f"{name}, seed {replay.seed}", time.perf_counter()
    total = total or len(replay.workload.pods)
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = OutputConsole(progress=True)
    # A bar on standard error where that is a terminal, else a line now and then.
    shown, printed = console.is_terminal, time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(title, total=total)
        for done, step in enumerate(steps or replay.run(), start=1):
            recorder.saw(step)
            if done % 50 == 0:
                bar.update(task, completed=done)
                if not shown and time.monotonic() - printed >= LINE_SECONDS:
                    printed = time.monotonic()
                    click.echo(f"{title}: {done:,} of {total:,} pods", err=True)
    outcome = recorder.outcome(replay.rooms)
    return Run(name, replay.seed, load, outcome, time.perf_counter() - began)


def as_fields(run: Run) -> dict[str, object]:
    """Return the fields for scripts. Allocation at 100 % is null where less was asked for."""
    outcome, at_full = run.outcome, run.outcome.at(FULL)
    return {
        "policy": run.policy,
        "seed": run.seed,
        "load": run.load,
        "pods": outcome.pods,
        "placed": outcome.placed,
        "gpu_allocation_percent": round(outcome.allocation_percent, 3),
        "gpu_allocation_percent_at_100": None if at_full is None else round(at_full, 3),
        "gpu_allocation_percent_by_model": {
            model: round(percent, 3) for model, (_, percent) in outcome.models.items()
        },
        "decisions_per_second": round(outcome.pods / run.seconds),
    }


def draw(path: Path, runs: Sequence[Run]) -> None:
    """Draw the mean over the seeds, for each policy."""
    if path.suffix.lower() != ".svg":
        raise click.BadParameter(
            f"{path} must end in .svg: the plot is an SVG file", param_hint="--plot"
        )
    grouped = {name: [run.outcome.curve for run in of] for name, of in by_policy(runs)}
    curves = {name: mean_curve(some) for name, some in grouped.items() if all(some)}
    try:
        path.write_text(chart(curves), encoding="utf-8")
    except OSError as error:
        raise InputError(path, f"cannot be written: {error.strerror}") from error


def by_policy(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    """Group runs by policy, in the order in which they were asked for."""
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(run.policy, []).append(run)
    return list(grouped.items())


def print_report(runs: Sequence[Run]) -> None:
    """Print allocation by policy, and by model of GPU."""
    console, grouped = OutputConsole(), by_policy(runs)
    table = Table(box=SIMPLE_HEAD, title="GPUs allocated, percent", pad_edge=False)
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

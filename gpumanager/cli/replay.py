"""`gpumanager replay`: a trace of a GPU cluster, placed by the policies that the scheduler has.

Pods are shuffled by the seed and inflated to the load; one that fits nowhere is dropped; nobody
leaves, but with `--churn`. Among equally good nodes chance decides, or with `--ties names` their
names.
"""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gpumanager.cli.output.console import ProgressConsole
from gpumanager.cli.output.replay_report import Run, by_policy, print_report
from gpumanager.errors import InputError
from gpumanager.placement.policies import DEFAULT_POLICY
from gpumanager.placement.values import FreeNode
from gpumanager.sim.trace.baselines import policies
from gpumanager.sim.trace.chart import chart, mean_curve
from gpumanager.sim.trace.churn import Churn
from gpumanager.sim.trace.fgd import Fgd, typical_of
from gpumanager.sim.trace.loader import read_nodes, read_pods
from gpumanager.sim.trace.order import arrange
from gpumanager.sim.trace.outcome import Recorder, SteadyRecorder
from gpumanager.sim.trace.replay import Replay
from gpumanager.sim.trace.synthetic import MIXES, make_nodes, make_pods
from gpumanager.sim.trace.values import TracePod, Workload

FULL: Final = 100.0
LINE_SECONDS: Final = 5.0
"""Between two lines of progress where standard error is no terminal."""
LARGEST_LOAD: Final = 10.0
CSV: Final = click.Path(path_type=Path)


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
    default=(DEFAULT_POLICY,),
    show_default=True,
    type=click.Choice(list(policies(0))),
    help=f"One of {', '.join(policies(0))}. Repeatable.",
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
@click.option(
    "--churn",
    metavar="N",
    type=click.IntRange(1, 10_000_000),
    help="Let N pods arrive and others leave, so that requests stay at the load. The allocation "
    "shown is the mean over the second half.",
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
    churn: int | None,
    *,
    as_json: bool,
) -> None:
    """Replay a GPU cluster trace against the placement policies."""
    if math.isnan(load):
        raise click.BadParameter("write a number, not nan", param_hint="--load")
    if plot is not None and churn is not None:
        raise click.UsageError("--churn has one load, so there is nothing to draw against it")
    if plot is not None:
        _draw(plot, ())  # rather now than after minutes of work
    runs = []
    for seed in seeds:
        nodes, pods = _trace(pods_path, nodes_path, synthetic, count, seed)
        workload = arrange(nodes, pods, load, seed)
        for name in names:
            run = _run(workload, name, seed, load, churn, names_decide=ties == "names")
            runs.append(run)
            if as_json:
                click.echo(json.dumps(as_fields(run)))
    if plot is not None:
        _draw(plot, runs)
    if not as_json:
        print_report(runs)


def _trace(
    pods: Path | None, nodes: Path | None, synthetic: str | None, count: int, seed: int
) -> tuple[tuple[FreeNode, ...], tuple[TracePod, ...]]:
    if synthetic is not None:
        if pods or nodes:
            raise click.UsageError("--synthetic makes up a trace: remove --pods and --nodes")
        made = make_nodes(count, seed)
        return made, make_pods(made, MIXES[synthetic], seed)
    if pods is None or nodes is None:
        raise click.UsageError("give a trace with --pods and --nodes, or make one: --synthetic")
    return read_nodes(nodes), read_pods(pods)


def _run(
    workload: Workload, name: str, seed: int, load: float, churn: int | None, *, names_decide: bool
) -> Run:
    policy = policies(seed)[name]
    mix = typical_of(workload.pods) if isinstance(policy, Fgd) else None
    replay = Replay(workload, policy, seed, names_decide=names_decide, mix=mix)
    recorder: Recorder | SteadyRecorder = Recorder(workload)
    steps, total = replay.run(), len(workload.pods)
    if churn is not None:
        recorder, total = SteadyRecorder(workload, churn), churn
        steps = Churn(replay, load).run(churn)
    title, began = f"{name}, seed {seed}", time.perf_counter()
    columns = TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = ProgressConsole()
    # A bar on standard error where that is a terminal, else a line now and then.
    shown, printed = console.is_terminal, time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not shown) as bar:
        task = bar.add_task(title, total=total)
        for done, step in enumerate(steps, start=1):
            recorder.saw(step)
            if done % 50 == 0:
                bar.update(task, completed=done)
                if not shown and time.monotonic() - printed >= LINE_SECONDS:
                    printed = time.monotonic()
                    click.echo(f"{title}: {done:,} of {total:,} pods", err=True)
    return Run(name, seed, load, recorder.outcome(replay.rooms), time.perf_counter() - began)


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


def _draw(path: Path, runs: Sequence[Run]) -> None:
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

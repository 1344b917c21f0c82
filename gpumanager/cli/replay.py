"""`gpumanager replay`: a trace of a GPU cluster, placed by the policies that the scheduler has.

Pods are shuffled by the seed and inflated to the load; one that fits nowhere is dropped; none
leaves. Among equally good nodes chance decides, or with `--ties names` their names.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import mean, pstdev
from types import MappingProxyType
from typing import Final, NamedTuple

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from gpumanager.cli.output.console import OutputConsole
from gpumanager.placement import policies
from gpumanager.placement.slice_score import SliceScore
from gpumanager.placement.values import FreeNode
from gpumanager.sim.replay import Replay, Step
from gpumanager.sim.trace import (
    MIXES,
    TracePod,
    arrange,
    make_nodes,
    make_pods,
    read_nodes,
    read_pods,
)

POLICIES: Final = MappingProxyType({**policies.POLICIES, "claims": SliceScore()})
"""Those of the scheduler; `claims`: where GPUs are asked for by claims."""
LINE_SECONDS: Final = 2.0
"""Between two lines of progress on standard error."""
LARGEST_LOAD: Final = 10.0
CSV: Final = click.Path(path_type=Path)


class Run(NamedTuple):
    """One policy on one order of the pods. at_full: allocation when 100 % had been asked for; None
    where less was. models: the allocation of each model of GPU. seconds: that it took to decide."""

    policy: str
    seed: int
    load: float
    steps: Sequence[Step]
    allocation: float
    at_full: float | None
    models: dict[str, float]
    seconds: float

    @property
    def placed(self) -> int:
        return sum(step.placed for step in self.steps)


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
    *,
    as_json: bool,
) -> None:
    """Replay a GPU cluster trace against the placement policies."""
    if math.isnan(load):
        raise click.BadParameter("write a number, not nan", param_hint="--load")
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


def run_replay(replay: Replay, name: str, load: float, steps: Iterable[Step] | None = None) -> Run:
    """Run it to its end and show how far it is. steps: of another procedure than its own."""
    done: list[Step] = []
    began = printed = time.perf_counter()
    for step in steps or replay.run():
        done.append(step)
        if len(done) % 50 == 0 and time.perf_counter() - printed >= LINE_SECONDS:
            printed = time.perf_counter()
            how = f"{len(done):,} pods, {step.allocated:.0f} % allocated"
            click.echo(f"{name}, seed {replay.seed}: {how}", err=True)
    seconds = time.perf_counter() - began
    at_full = next((step.allocated for step in done if step.asked >= 100), None)  # noqa: PLR2004
    models = allocation_by_model(replay.rooms)
    return Run(name, replay.seed, load, done, done[-1].allocated, at_full, models, seconds)


def allocation_by_model(rooms: Sequence[FreeNode]) -> dict[str, float]:
    """Return percent of the GPUs' cores allocated, by model; those with most GPUs first."""
    gpus, free = Counter[str](), Counter[str]()
    for room in rooms:
        gpus[room.model] += len(room.gpus)
        free[room.model] += sum(gpu.cores for gpu in room.gpus)
    return {
        model: round(100 - free[model] / count, 3) for model, count in gpus.most_common() if count
    }


def as_fields(run: Run) -> dict[str, object]:
    """Return the fields for scripts."""
    return {
        "policy": run.policy,
        "seed": run.seed,
        "load": run.load,
        "pods": len(run.steps),
        "placed": run.placed,
        "gpu_allocation_percent": round(run.allocation, 3),
        "gpu_allocation_percent_at_100": None if run.at_full is None else round(run.at_full, 3),
        "gpu_allocation_percent_by_model": run.models,
        "decisions_per_second": round(len(run.steps) / run.seconds),
    }


def print_report(runs: Sequence[Run]) -> None:
    """Print allocation by policy."""
    table = Table(box=SIMPLE_HEAD, title="GPUs allocated, percent", pad_edge=False)
    table.add_column("policy")
    load = f"at {100 * runs[0].load:g} %"
    for column in ("seeds", "at 100 %", load, "sd", "placed", "decisions/s"):
        table.add_column(column, justify="right")
    for name in dict.fromkeys(run.policy for run in runs):
        of_policy = [run for run in runs if run.policy == name]
        full = [run.at_full for run in of_policy if run.at_full is not None]
        last, pods = [run.allocation for run in of_policy], sum(len(run.steps) for run in of_policy)
        table.add_row(
            name,
            str(len(of_policy)),
            f"{mean(full):.2f}" if full else "-",
            f"{mean(last):.2f}",
            f"{pstdev(last):.2f}",
            f"{sum(run.placed for run in of_policy)} of {pods}",
            f"{pods / sum(run.seconds for run in of_policy):.0f}",
        )
    OutputConsole().print(table)

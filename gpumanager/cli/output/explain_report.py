"""What an extender remembers of a pod, in words for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpumanager.cli.output.console import OutputConsole
from gpumanager.dra.unallocated import NodesWithout
from gpumanager.errors import GpuManagerError
from gpumanager.units import count_of
from gpumanager.view.story import when

Said = Mapping[str, Any]

Claims = Sequence[tuple[str, Sequence[str], Sequence[NodesWithout]]]
"""Name, sentences, and why it is not allocated."""


def print_answers(
    pod: str,
    extender: Said | GpuManagerError | None,
    admission: Sequence[str],
    cluster: Sequence[str],
    claims: Claims = (),
) -> None:
    """Print all of it. extender: its record, or why there is none; None where it is not asked for.
    admission: by the node's agent. pod: empty where claims alone are explained."""
    console = OutputConsole()
    if extender is None or isinstance(extender, GpuManagerError):
        if pod:
            console.print(Text(pod, style="bold"))
        if extender is not None:
            console.print(Text(f"The extender does not say: {extender}", style="dim"))
    else:
        print_explanation(console, extender)
    node, api = ("On its node", admission), ("In the cluster", cluster)
    told = [(f"Claim {name}", said, reasons) for name, said, reasons in claims]
    for title, sentences, reasons in ((*api, ()), *told, (*node, ())):
        if sentences:
            console.print(Text(f"\n{title}", style="bold"))
        for line in sentences:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
        if reasons:
            console.print(
                _reasons(
                    [
                        asdict(one)
                        | (
                            {"reason": f"request {one.request}: {one.reason}"}
                            if one.request
                            else {}
                        )
                        for one in reasons
                    ]
                )
            )


def print_explanation(console: OutputConsole, said: Said) -> None:
    """Print what `/explain` answers."""
    states = (
        (said["bound"], f" is on {said['bound']}", "bold green"),
        (said.get("trouble"), " could not be bound", "bold red"),
        (said["fitting"], " fits and waits to be bound", "bold yellow"),
        (True, " is pending: no node fits", "bold red"),
    )
    state, style = next((text, style) for holds, text, style in states if holds)
    title = Text(str(said["pod"]), style="bold").append(state, style=style)
    console.print(title.append(f"   {when(said['time'])}", style="not bold dim"))
    for line in _story(said):
        console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
    if said["gpus"]:
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        for name in ("container", "GPU", "UUID"):
            table.add_column(name, overflow="fold", justify="right" if name == "GPU" else "left")
        for row in said["gpus"]:
            table.add_row(*(Text(str(row[name])) for name in ("container", "index", "uuid")))
        console.print(table)
    if said["reasons"]:
        console.print(_reasons(said["reasons"]))


def _story(said: Said) -> Iterator[str]:
    if trouble := said.get("trouble"):
        yield str(trouble)
    if said["nodes"]:
        yield f"{said['fitting']:,} of {count_of(said['nodes'], 'node')} fit."
    if said["policy"]:
        yield f"Policy: {said['policy']}."
    points, best = said.get("points"), said["best"]
    if said["bound"] and points is not None and best:
        # By the policy's points, which mean nothing to people: they may be negative.
        better = sum(one["nodes"] for one in best if one["points"] > points)
        alike = sum(one["nodes"] for one in best if one["points"] == points)
        fit = f"the {count_of(said['fitting'], 'node')} that fit"
        of = f"of {fit if said['fitting'] else 'all nodes'}"
        place = f"behind the best {better:,} {of}"
        if not better:
            place = f"the best {of}"
            if alike > 1:
                place = f"among the {alike:,} best {of}, with the same score"
        elif alike:
            place = f"number {better + 1:,} {of}"
        weighs = "; others were better, but kube-scheduler weighs other things too"
        yield f"{said['bound']} was {place}{weighs if better else ''}."
    if best:
        names = (
            str(one["node"])
            + (f" and {one['nodes'] - 1:,} more as good" if one["nodes"] > 1 else "")
            for one in best
        )
        yield f"The best: {'; '.join(names)}."
    elif said["fitting"] > 1:
        yield "All nodes that fit have the same score."


def _reasons(rows: Sequence[Said]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("nodes", justify="right", no_wrap=True)
    table.add_column("why not, and one of them", overflow="fold")
    for row in rows:
        why = Text(str(row["reason"]))
        why.append(f"\n{row['example']}", style="dim")
        why.append(f": {row['detail']}" if row["detail"] else "", style="dim")
        table.add_row(f"{row['nodes']:,}", why)
    return table

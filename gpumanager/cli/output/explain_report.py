"""What an extender remembers of a pod, in words for people."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpumanager.cli.output.console import OutputConsole
from gpumanager.dra.unallocated import NodesWithout
from gpumanager.errors import GpuManagerError
from gpumanager.units import count_of

Said = Mapping[str, Any]


Claims = Sequence[tuple[str, Sequence[str], Sequence[NodesWithout]]]
"""Name, sentences, and why it is not allocated."""


def print_told(
    pod: str,
    extender: Said | GpuManagerError | None,
    admission: Sequence[str],
    cluster: Sequence[str],
    claims: Claims = (),
) -> None:
    """extender: its record, or why there is none; None where it is not asked for. admission: by the
    node's agent. pod: empty where claims alone are explained."""
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
            console.print(_reasons([_row(one) for one in reasons]))


def print_explanation(console: OutputConsole, said: Said) -> None:
    """said: as `/explain` answers."""
    console.print(_headline(said))
    for line in _story(said):
        console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
    if said["gpus"]:
        console.print(_gpus(said["gpus"]))
    if said["reasons"]:
        console.print(_reasons(said["reasons"]))


def _headline(said: Said) -> Text:
    found = Text(str(said["pod"]), style="bold")
    if said["bound"]:
        found.append(f" is on {said['bound']}", style="bold green")
    elif said.get("trouble"):
        found.append(" could not be bound", style="bold red")
    elif said["fitting"]:
        found.append(" fits and waits to be bound", style="bold yellow")
    else:
        found.append(" is pending: no node fits", style="bold red")
    return found.append(f"   {_when(said['time'])}", style="not bold dim")


def _story(said: Said) -> Iterator[str]:
    if trouble := said.get("trouble"):
        yield str(trouble)
    if said["nodes"]:
        yield f"{said['fitting']:,} of {count_of(said['nodes'], 'node')} fit."
    if said["policy"]:
        yield f"Policy: {said['policy']}."
    yield from _comparison(said)


def _comparison(said: Said) -> Iterator[str]:
    points, best = said.get("points"), said["best"]
    if said["bound"] and points is not None and best:
        yield f"{said['bound']} was {_rank(points, best, said['fitting'])}."
    if best:
        yield f"The best: {'; '.join(map(_alike, best))}."
    elif said["fitting"] > 1:
        yield "All nodes that fit have the same score."


def _rank(points: float, best: Sequence[Said], fitting: int) -> str:
    """By the policy's points, which mean nothing to people: they may be negative."""
    better = sum(one["nodes"] for one in best if one["points"] > points)
    alike = sum(one["nodes"] for one in best if one["points"] == points)
    of = f"of the {count_of(fitting, 'node')} that fit" if fitting else "of all nodes"
    if not better and alike > 1:
        return f"among the {alike:,} best {of}, with the same score"
    if not better:
        return f"the best {of}"
    place = f"number {better + 1:,} {of}" if alike else f"behind the best {better:,} {of}"
    return f"{place}; others were better, but kube-scheduler weighs other things too"


def _alike(one: Said) -> str:
    others = one["nodes"] - 1
    return str(one["node"]) + (f" and {others:,} more as good" if others else "")


def _gpus(rows: Sequence[Said]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in ("container", "GPU", "UUID"):
        table.add_column(column, overflow="fold", justify="right" if column == "GPU" else "left")
    for row in rows:
        table.add_row(*(Text(str(row[name])) for name in ("container", "index", "uuid")))
    return table


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


def _row(one: NodesWithout) -> Said:
    """Of a request of a claim, as of a pod."""
    reason = f"request {one.request}: {one.reason}" if one.request else one.reason
    return {"nodes": one.nodes, "reason": reason, "example": one.example, "detail": one.detail}


def _when(seconds: float) -> str:
    """In the reader's time zone."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")

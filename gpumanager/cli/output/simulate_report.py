"""What a simulation found, as a table for people and as JSON for programs.

The table has one row of figures per container, and under it, over the whole width, why it got its
GPU or why it was refused, and what the webhook of a cluster would have said. A column says why a
container got less than its share, where one did.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gpumanager.cli.output.console import OutputConsole
from gpumanager.cli.output.simulate_progress import gpus_of, name_of, plain
from gpumanager.scheduler.webhook.review import Decision
from gpumanager.sim.host_watch import BUSY
from gpumanager.sim.machine import Machine
from gpumanager.sim.machines import load_machine, machine_names
from gpumanager.sim.results import ContainerResult
from gpumanager.units import MEMORY_BLOCK, count_of, format_bytes

WIDTH_WITHOUT_TERMINAL: Final = 100
GAP: Final = 2
CAPTION: Final = "Simulated GPUs, {}; memory and time are simulated too."
BUSY_HOST: Final = (
    "This machine was busy: programs waited for a processor for {:.0%} of the time, which can make "
    "shares smaller."
)
TOLD: Final = 0.05
"""Of the time: from here on shares are seen to suffer."""
STOPPED: Final = "stop"
MEETS: Final = 0.95
"""Of its share: with so much of it a container has it."""
NOTHING: Final = "-"

HEADINGS: Final = (
    "\npod/container",
    "\nasked for",
    "\nGPU",
    "most held,\nof limit",
    "memory\nrefused",
    "share got,\nof granted",
    "\nexit",
    "got less,\nbecause",
)
RIGHT: Final = frozenset({3, 4, 5, 6})
"""Columns of figures."""
LESS: Final = 7
"""The column that is left out where no container got less than its share."""

SHRINKS: Final = (*((LESS, 9), (2, 5), (3, 10), (0, 14), (5, 10)), *((0, 12), (2, 4), (5, 8)))
"""Where a narrow terminal takes its columns from: which, and how little it may leave.

Before these, the names and what is asked for get two lines, which break where a part ends.
"""
ASKED_IN_TWO_LINES: Final = 10
BREAKS: Final = {1: ",", 3: " of", 5: " of"}
"""After what a cell of a column breaks."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a simulation found. late: the part of the time that this machine kept programs waiting.

    said: what the webhook of a cluster would say, by the full name of the pod. claims: the same of
    claims, templates and classes, by kind and name.
    """

    machine: Machine
    results: Sequence[ContainerResult]
    late: float = 0.0
    said: Mapping[str, Decision] = field(default_factory=dict)
    claims: Mapping[str, Decision] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Return whether a pod failed or was refused, or a webhook would refuse it or its claim."""
        said = (*self.said.values(), *self.claims.values())
        return any(one.failed for one in self.results) or any(one.errors for one in said)


def as_json(report: Report) -> dict[str, Any]:
    """Return the format of the design; others script against it."""
    return {
        "machine": report.machine.name,
        "containers": [
            {
                "pod": one.pod.full_name,
                "container": one.container.name,
                "gpus": [gpu.uuid for gpu in one.gpus],
                "cores": one.container.cores,
                "memory_limit_bytes": one.memory_limit,
                "memory_peak_bytes": one.measured.memory_peak,
                "memory_denied": one.measured.memory_denied,
                "share_target_percent": one.share_target,
                "share_achieved_percent": one.measured.share,
                "share_less_because": shortfall(one, report.late),
                "throttled_launches": one.measured.throttled,
                "throttled_seconds": one.measured.throttled_seconds,
                "exit_code": one.exit_code,
                "stopped": one.stopped,
                "refused": one.refused,
            }
            for one in report.results
        ],
        "host_late_ratio": round(report.late, 3),
        "webhook": [
            {what: name, "errors": list(said.errors), "warnings": list(said.warnings)}
            for what, found in (("pod", report.said), ("claim", report.claims))
            for name, said in found.items()
        ],
    }


def shortfall(result: ContainerResult, late: float) -> str | None:
    """Return why a container got less GPU time than its share; None where it did not."""
    measured, target = result.measured, result.share_target
    if target is None or measured.share is None or measured.share >= MEETS * target:
        return None
    if measured.memory_denied:
        return "refused memory"
    missing = 1 - measured.share / target
    waited = measured.throttled_seconds / (measured.seconds * len(result.gpus) or 1)
    if late > BUSY and late >= missing / 2:
        return "this machine was busy"
    # Else it had nothing to launch for most of what is missing; or it had, in bursts, which were
    # throttled although it got less than its share over all the time.
    return "throttled" if waited >= missing / 2 else "asked for less"


def print_report(report: Report) -> None:
    console = console_for_results()
    rows = [_cells(result, report.late) for result in report.results]
    headings = HEADINGS if any(row[LESS].plain != NOTHING for row in rows) else HEADINGS[:LESS]
    head = [Text(heading, style="bold") for heading in headings]
    shown = [head, *(row[: len(head)] for row in rows)]
    # What each column needs; less where all of them do not fit.
    widths = [max(map(_longest, column)) for column in zip(*shown, strict=True)]
    excess = sum(widths) + GAP * (len(widths) - 1) - console.width
    broken = max(_longest(_broken(row[0], 0)) for row in shown)
    shrinks = [one for one in SHRINKS if one[0] < len(widths)]
    for column, least in ((0, broken), (1, ASKED_IN_TWO_LINES), *shrinks):
        given = max(0, min(excess, widths[column] - least))
        widths[column] -= given
        excess -= given
    rule = Rule(characters="-" if console.options.ascii_only else "─", style="dim")
    console.print()
    console.print(_line(head, widths))
    console.print(rule)
    told: set[str] = set()
    for result, row in zip(report.results, rows, strict=True):
        console.print(_line(row[: len(head)], widths))
        if result.refused:
            why = Text("refused: ", style="red").append(plain(result.refused), style="default")
            console.print(Padding(why, (0, 0, 0, 4)))
        elif result.why:
            console.print(Padding(Text(plain(result.why), style="dim"), (0, 0, 0, 4)))
        if (pod := result.pod.full_name) not in told:
            for line in _webhook(report.said.get(pod, Decision())):
                console.print(Padding(line, (0, 0, 0, 4)))
        told.add(pod)
    for name, said in report.claims.items():
        console.print(Text(name, style="bold"))
        for line in _webhook(said):
            console.print(Padding(line, (0, 0, 0, 4)))
    console.print(rule)
    console.print(Text(CAPTION.format(gpus_of(report.machine)), style="dim"))
    measured = any(one.measured.share is not None for one in report.results)
    if report.late > TOLD and measured:
        console.print(Text(BUSY_HOST.format(report.late), style="yellow"))


def _webhook(said: Decision) -> Iterator[Text]:
    for text in said.errors:
        yield Text("the webhook would refuse it: ", style="red").append(text, style="default")
    for text in said.warnings:
        yield Text("the webhook warns: ", style="yellow").append(text, style="default")


def _cells(result: ContainerResult, late: float) -> list[Text]:
    """Return a row of the table."""
    container, measured, code = result.container, result.measured, result.exit_code
    asked = [count_of(container.cores, "core")]
    if container.blocks:
        asked.append(format_bytes(container.blocks * MEMORY_BLOCK))
    ended = Text(NOTHING)
    if code is not None:
        ended = Text(str(code), style="green" if code == 0 else "red")
        ended = Text(STOPPED) if result.stopped else ended
    memory, denied, share = NOTHING, Text(NOTHING), NOTHING
    if result.gpus:
        memory, limit = format_bytes(measured.memory_peak), format_bytes(result.memory_limit)
        if result.memory_limit:  # else it has admin access
            same_unit = memory.split()[1] == limit.split()[1] or measured.memory_peak == 0
            memory = f"{memory.split()[0] if same_unit else memory} of {limit}"
        count = measured.memory_denied
        denied = Text(str(count), style="yellow" if count else "default")
        # A container that launched nothing has a grant only.
        share = NOTHING if measured.share is None else f"{measured.share:g}"
        if result.share_target is not None:
            share = f"{share} of {result.share_target} %"
    return [
        Text(name_of(result.pod, result.container), style="bold"),
        Text(", ".join(asked) if container.asks else NOTHING),
        Text(", ".join(str(gpu.index) for gpu in result.gpus) or NOTHING),
        Text(memory),
        denied,
        Text(share),
        ended,
        Text(shortfall(result, late) or NOTHING),
    ]


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Table:
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for column, width in enumerate(widths):
        justify = "right" if column in RIGHT else "left"
        grid.add_column(width=width, justify=justify, overflow="fold")  # type: ignore[arg-type]
    row = [_broken(cells[0], widths[0]), *cells[1:]]
    for column, after in BREAKS.items():
        # Cores and memory, or a figure and what it is of, stand below each other where they do not
        # fit beside each other.
        cell = cells[column]
        if _longest(cell) > widths[column]:
            text = cell.plain.replace(f"{after} ", f"{after}\n")
            row[column] = Text(text, style=cell.style)
    grid.add_row(*row)
    return grid


def _broken(name: Text, width: int) -> Text:
    """Break a long name where the container's begins."""
    pod, slash, container = name.plain.rpartition("/")
    fits = _longest(name) <= width or not slash
    return name if fits else Text(f"{pod}\n/{container}", style=name.style)


def _longest(cell: Text) -> int:
    return max(len(line) for line in cell.plain.split("\n"))


def console_for_results() -> Console:
    """Write to standard output; of a comfortable width where that is a file or a pipe."""
    console = OutputConsole()
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def machines_table() -> None:
    """Print the machines that come with the project."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("machine", "GPUs", "memory", "best link"):
        table.add_column(heading)
    for name in machine_names():
        machine = load_machine(name)
        bonds = [bond for row in machine.topology.bonds for bond in row if bond is not None]
        best = str(max(bonds, key=lambda bond: bond.quality)) if bonds else NOTHING
        models = gpus_of(machine).removeprefix(f"{name}: ")
        table.add_row(name, models, format_bytes(machine.topology.gpus[0].memory), best)
    console_for_results().print(table)

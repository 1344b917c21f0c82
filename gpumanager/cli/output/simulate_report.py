"""What a simulation found, as a table for people and as JSON for programs.

The table has one row of figures per container, and under it, over the whole width, why it got its
GPU or why it was refused.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from gpumanager.cli.output.console import OutputConsole
from gpumanager.cli.output.simulate_progress import gpus_of, name_of, plain
from gpumanager.sim.machine import Machine
from gpumanager.sim.machines import load_machine, machine_names
from gpumanager.sim.results import ContainerResult
from gpumanager.units import MEMORY_BLOCK, format_bytes

WIDTH_WITHOUT_TERMINAL: Final = 100
GAP: Final = 2
CAPTION: Final = "Simulated GPUs, {}; memory and time are their own account."
NOTHING: Final = "-"

HEADINGS: Final = (
    "\npod/container",
    "\nasked for",
    "\nGPU",
    "most held,\nof limit",
    "refused\nat limit",
    "share got,\nof granted",
    "\nexit",
)
RIGHT: Final = frozenset({3, 4, 5, 6})
"""Columns of figures."""

SHRINKS: Final = ((2, 5), (3, 10), (0, 14), (5, 8), (2, 4))
"""Where a narrow terminal takes its columns from: which, and how little it may leave.

Before these, the names and what is asked for get two lines, which break where a part ends.
"""
ASKED_IN_TWO_LINES: Final = 10


def as_json(machine: Machine, results: Sequence[ContainerResult]) -> dict[str, Any]:
    """The format of the design; others script against it."""
    return {"machine": machine.name, "containers": [_record(result) for result in results]}


def _record(result: ContainerResult) -> dict[str, Any]:
    return {
        "pod": result.pod.full_name,
        "container": result.container.name,
        "gpus": [gpu.uuid for gpu in result.gpus],
        "cores": result.container.cores,
        "memory_limit_bytes": result.memory_limit,
        "memory_peak_bytes": result.measured.memory_peak,
        "memory_denied": result.measured.memory_denied,
        "share_target_percent": result.share_target,
        "share_achieved_percent": result.measured.share,
        "throttled_launches": result.measured.throttled,
        "throttled_seconds": result.measured.throttled_seconds,
        "exit_code": result.exit_code,
        "refused": result.refused,
    }


def print_report(machine: Machine, results: Sequence[ContainerResult]) -> None:
    console = console_for_results()
    rows = [_cells(result) for result in results]
    widths = _widths([[Text(heading) for heading in HEADINGS], *rows], console.width)
    rule = Rule(characters="-" if console.options.ascii_only else "─", style="dim")
    console.print()
    console.print(_line([Text(heading, style="bold") for heading in HEADINGS], widths))
    console.print(rule)
    for result, row in zip(results, rows, strict=True):
        console.print(_line(row, widths))
        if (why := _why(result)) is not None:
            console.print(Padding(why, (0, 0, 0, 4)))
    console.print(rule)
    console.print(Text(CAPTION.format(gpus_of(machine)), style="dim"))


def _cells(result: ContainerResult) -> list[Text]:
    """One row of the table."""
    return [
        Text(name_of(result.pod, result.container), style="bold"),
        Text(_asked(result)),
        Text(", ".join(str(gpu.index) for gpu in result.gpus) or NOTHING),
        Text(_memory(result)),
        _denied(result),
        Text(_share(result)),
        _exit(result),
    ]


def _asked(result: ContainerResult) -> str:
    container = result.container
    memory = [format_bytes(container.blocks * MEMORY_BLOCK)] if container.blocks else []
    cores = "1 core" if container.cores == 1 else f"{container.cores} cores"
    return ", ".join([cores, *memory]) if container.asks else NOTHING


def _memory(result: ContainerResult) -> str:
    if not result.gpus:
        return NOTHING
    held, limit = (
        format_bytes(amount) for amount in (result.measured.memory_peak, result.memory_limit)
    )
    if not result.memory_limit:  # admin access
        return held
    same_unit = held.split()[1] == limit.split()[1] or result.measured.memory_peak == 0
    return f"{held.split()[0] if same_unit else held} of {limit}"


def _denied(result: ContainerResult) -> Text:
    if not result.gpus:
        return Text(NOTHING)
    count = result.measured.memory_denied
    return Text(str(count), style="yellow" if count else "default")


def _share(result: ContainerResult) -> str:
    """A container that launched nothing has a grant only."""
    if not result.gpus:
        return NOTHING
    got = NOTHING if result.measured.share is None else f"{result.measured.share:g}"
    return got if result.share_target is None else f"{got} of {result.share_target} %"


def _exit(result: ContainerResult) -> Text:
    if result.exit_code is None:
        return Text(NOTHING)
    return Text(str(result.exit_code), style="green" if result.exit_code == 0 else "red")


def _why(result: ContainerResult) -> Text | None:
    if result.refused:
        return Text("refused: ", style="red").append(plain(result.refused), style="default")
    return Text(plain(result.why), style="dim") if result.why else None


def _line(cells: Sequence[Text], widths: Sequence[int]) -> Table:
    grid = Table.grid(padding=(0, GAP, 0, 0))
    for column, width in enumerate(widths):
        justify = "right" if column in RIGHT else "left"
        grid.add_column(width=width, justify=justify, overflow="fold")  # type: ignore[arg-type]
    name, asked, *figures = cells
    grid.add_row(_broken(name, widths[0]), _in_two_lines(asked, widths[1]), *figures)
    return grid


def _broken(name: Text, width: int) -> Text:
    """A long name breaks where the container's begins."""
    pod, slash, container = name.plain.rpartition("/")
    fits = len(name.plain) <= width or not slash
    return name if fits else Text(f"{pod}\n/{container}", style=name.style)


def _in_two_lines(asked: Text, width: int) -> Text:
    """Cores and memory below each other where they do not fit beside each other."""
    fits = len(asked.plain) <= width
    return asked if fits else Text(asked.plain.replace(", ", ",\n"), style=asked.style)


def _widths(rows: Sequence[Sequence[Text]], available: int) -> list[int]:
    """What each column needs; less where all of them do not fit."""
    widths = [max(_longest(cell) for cell in column) for column in zip(*rows, strict=True)]
    excess = sum(widths) + GAP * (len(widths) - 1) - available
    broken = max(_longest(_broken(row[0], 0)) for row in rows)
    for column, least in ((0, broken), (1, ASKED_IN_TWO_LINES), *SHRINKS):
        given = max(0, min(excess, widths[column] - least))
        widths[column] -= given
        excess -= given
    return widths


def _longest(cell: Text) -> int:
    return max(len(line) for line in cell.plain.split("\n"))


def console_for_results() -> Console:
    """On standard output; of a comfortable width where that is a file or a pipe."""
    console = OutputConsole()
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def machines_table() -> None:
    """The machines that come with the project."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("machine", "GPUs", "memory", "best link"):
        table.add_column(heading)
    for row in _machine_rows():
        table.add_row(*row)
    console_for_results().print(table)


def _machine_rows() -> Iterator[tuple[str, str, str, str]]:
    for name in machine_names():
        machine = load_machine(name)
        bonds = [bond for row in machine.topology.bonds for bond in row if bond is not None]
        best = str(max(bonds, key=lambda bond: bond.quality)) if bonds else NOTHING
        models = gpus_of(machine).removeprefix(f"{name}: ")
        yield name, models, format_bytes(machine.topology.gpus[0].memory), best

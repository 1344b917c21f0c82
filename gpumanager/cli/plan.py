"""`gpumanager plan`: what would be placed where, on a machine described by text.

Requests are placed one after another, each on what the ones before it left. A refused request is
an answer, not a failure.
"""

import json
import re
from collections.abc import Sequence
from typing import Final

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table

from gpumanager.cli.output.console import OutputConsole
from gpumanager.errors import InputError
from gpumanager.gpu.topology_text import read_topology
from gpumanager.gpu.values import Topology
from gpumanager.placement.place import place
from gpumanager.placement.policies import BINPACK, POLICIES
from gpumanager.placement.values import Evaluator, FreeGpus, GpuChoice, Refusal, Request
from gpumanager.units import CORES_PER_GPU, MEMORY_BLOCK, count_of, format_bytes, parse_bytes

GETS = {Evaluator.SHARE: "share", Evaluator.FRAGMENT: "whole GPU", Evaluator.LINK: "whole GPUs"}
"""What a request gets, in words; JSON has the names of gpu-manager's evaluators."""

_AMOUNT: Final = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?")
_OCCUPIED: Final = re.compile(r"([0-9]{1,9})=([^=]*)")


@click.command("plan")
@click.option(
    "--topology",
    "path",
    metavar="FILE",
    required=True,
    help="What `nvidia-smi topo -m` printed; - reads standard input.",
)
@click.option(
    "--memory",
    "size",
    metavar="SIZE",
    default="16GiB",
    show_default=True,
    help="Memory of each GPU.",
)
@click.option(
    "--occupied",
    metavar="GPU=CORES[:BLOCKS]",
    multiple=True,
    help="What a container already holds of a GPU; 100 cores are the whole GPU. Repeatable.",
)
@click.option(
    "--request",
    "requests",
    metavar="CORES[:BLOCKS]",
    multiple=True,
    required=True,
    help="What a container asks for: 1-99 cores with blocks of 256 MiB, or 100 per whole GPU. "
    "Repeatable: placed one after another.",
)
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default=BINPACK,
    show_default=True,
    help="How the GPU for a share is chosen.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    path: str,
    size: str,
    occupied: Sequence[str],
    requests: Sequence[str],
    policy: str,
    *,
    as_json: bool,
) -> None:
    """Show which GPUs requests would get, and why.

    \b
    Examples:
      nvidia-smi topo -m | gpumanager plan --topology - --request 30:8
      gpumanager plan --topology examples/topology/dgx-a100.txt --request 200
    """
    asked = [Request(*_amount(f"--request {text}", text)) for text in requests]
    try:
        memory = parse_bytes(size)
    except ValueError as error:
        raise InputError("--memory", str(error)) from error
    if memory < MEMORY_BLOCK:
        raise InputError("--memory", f"{size!r} is less than one memory block of 256 MiB")
    topology = read_topology(path, memory)
    free = _occupy(topology, occupied)
    decisions = []
    for request in asked:
        decision = place(topology, free, request, policy)
        if isinstance(decision, GpuChoice):
            free = free.take(decision)
        decisions.append(decision)
    if as_json:
        found = [
            {"request": {"cores": one.request.cores, "blocks": one.request.blocks}}
            | (
                {"refused": str(one)}
                if isinstance(one, Refusal)
                else {"evaluator": one.evaluator.value, "gpus": [gpu.index for gpu in one.gpus]}
            )
            for one in decisions
        ]
        click.echo(json.dumps({"decisions": found}))
        return
    title = f"{count_of(len(topology.gpus), 'GPU')} of {format_bytes(topology.gpus[0].memory)}"
    table = Table(box=SIMPLE_HEAD, title=title, pad_edge=False)
    for column in ("asked", "gets", "GPUs", "why"):
        table.add_column(column, ratio=1 if column == "why" else None, overflow="fold")
    for one in decisions:
        cores, blocks = one.request.cores, one.request.blocks
        words = count_of(cores, "core") + (f"\n{count_of(blocks, 'block')}" if blocks else "")
        if isinstance(one, Refusal):
            table.add_row(words, "[red]refused[/]", "-", str(one))
        else:
            gpus = ", ".join(str(gpu.index) for gpu in one.gpus)
            table.add_row(words, GETS[one.evaluator], f"[green]{gpus}[/]", one.why)
    OutputConsole().print(table)


def _amount(source: str, text: str) -> tuple[int, int]:
    """Read cores and blocks of `30`, `30:8`; raises InputError."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise InputError(source, "expected CORES or CORES:BLOCKS, for example 30:8 or 200")
    return int(match[1]), int(match[2] or 0)


def _occupy(topology: Topology, occupied: Sequence[str]) -> FreeGpus:
    """Return what is free beside every `--occupied`; raises InputError where they contradict."""
    free = FreeGpus.of_idle(topology)
    for text in occupied:
        source = f"--occupied {text}"
        match = _OCCUPIED.fullmatch(text)
        if match is None:
            raise InputError(source, "expected GPU=CORES or GPU=CORES:BLOCKS, for example 0=30:8")
        index, (cores, blocks) = int(match[1]), _amount(source, match[2])
        if index >= len(topology.gpus):
            raise InputError(source, f"no GPU {index}: the topology has {len(topology.gpus)} GPUs")
        gpu = topology.gpus[index]
        room = free.of(gpu)
        if not 0 < cores <= CORES_PER_GPU:
            raise InputError(source, f"{cores} cores: one container holds 1 to 100 of a GPU")
        if cores > room.cores:
            raise InputError(source, f"GPU {index} has only {room.cores} cores left")
        if blocks > room.blocks:
            raise InputError(source, f"GPU {index} has only {room.blocks} blocks left")
        free = free.occupy(gpu.uuid, Request(cores, blocks))
    return free

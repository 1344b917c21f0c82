"""`gpumanager doctor`: what a node has for the agent, what is wrong, and what to do about it.

It takes the agent's flags and looks where the agent would; it changes nothing, and needs neither a
GPU nor a running agent. Exit status 1 where something is wrong.
"""

import asyncio
import copy
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from gpumanager.cli import agent
from gpumanager.cli.flags import Flags
from gpumanager.cli.output.console import OutputConsole
from gpumanager.cli.support.bundle import Source, make_bundle, sources
from gpumanager.cli.support.inputs import read_inputs
from gpumanager.doctor.about_container import about_container, find_libcuda, is_container
from gpumanager.doctor.checks import examine, is_wrong
from gpumanager.doctor.question import DoctorQuestion
from gpumanager.doctor.values import Finding, Verdict

SIGNS: Final = {
    Verdict.WELL: "[green]ok[/]",
    Verdict.NOTE: "[yellow]note[/]",
    Verdict.WRONG: "[bold red]wrong[/]",
}


AGENT_FLAGS: Final = [copy.copy(one) for one in agent.command.params]
for one in AGENT_FLAGS:
    if isinstance(one, click.Option):
        one.hidden = True


@click.command("doctor", cls=Flags, params=AGENT_FLAGS)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.tar.gz",
    help="Write an archive for a bug report instead, without secrets; - is standard output.",
)
def command(*, as_json: bool, bundle: Path | None, **flags: Any) -> int:
    """Check what this node has for the agent: what is wrong, and what to do.

    Takes every flag of `gpumanager agent`, so that it checks the same paths. Changes nothing. Exits
    with status 1 if something is wrong. In a container that shares a GPU it checks whether programs
    find the library that limits them.

    \b
    Example, in the agent's container:
      gpumanager doctor --driver-root /host
      gpumanager doctor --driver-root /host --bundle bundle.tar.gz
    """
    logs = agent.take_log_flags(flags)
    settings = agent.read_settings(flags)
    inputs: dict[str, Any] = {}
    findings: tuple[Finding, ...]
    if is_container():
        findings = (about_container(DoctorQuestion(find_libcuda).answer()),)
    else:
        inputs = asyncio.run(read_inputs(settings))
        findings = examine(inputs)
    if bundle is not None:
        rows = (
            f"{one.verdict.value:6} {one.part}: {one.found}"
            + (f" -> {one.advice}" if one.advice else "")
            for one in findings
        )
        reports = {
            "doctor.txt": "\n".join(rows) + "\n",
            "doctor.json": _as_json(findings),
            "inputs.json": json.dumps(inputs, indent=1, default=_of_value),
        }
        own = [Source(name, "this report", partial(str, text)) for name, text in reports.items()]
        make_bundle(bundle, [*own, *sources(settings, logs.directory)])
        return 0
    if as_json:
        click.echo(_as_json(findings))
        return int(is_wrong(findings))
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("part", no_wrap=True)
    table.add_column("found, and what to do", ratio=1, overflow="fold")
    for one in findings:
        advice = f"\n[bold]→ {escape(one.advice)}[/]" if one.advice else ""
        table.add_row(SIGNS[one.verdict], one.part, f"{escape(one.found)}{advice}")
    console = OutputConsole()
    console.print(table)
    count = Counter(one.verdict for one in findings)
    summary = "[green]All is well.[/]"
    if notes := count[Verdict.NOTE]:
        summary = f"[green]Nothing is wrong[/]; {notes} to note."
    if wrong := count[Verdict.WRONG]:
        summary = f"[bold red]{wrong} wrong[/]: pods on this node would not get what they ask for."
    console.print(summary, soft_wrap=True)
    return int(is_wrong(findings))


def _of_value(value: Any) -> Any:
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else str(value)


def _as_json(findings: Sequence[Finding]) -> str:
    found = {
        "wrong": sum(one.verdict is Verdict.WRONG for one in findings),
        "findings": [
            {
                "part": one.part,
                "verdict": one.verdict.value,
                "found": one.found,
                "advice": one.advice or None,
            }
            for one in findings
        ],
    }
    return json.dumps(found, indent=2)

"""`gpumanager doctor`: what a node has for the agent, what is wrong, and what to do about it.

It takes the agent's flags and looks where the agent would; it changes nothing, and needs neither a
GPU nor a running agent. Exit status 1 where something is wrong.
"""

import asyncio
import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from gpumanager.cli import agent
from gpumanager.cli.flags import Flags
from gpumanager.cli.output.console import OutputConsole
from gpumanager.cli.support.bundle import make_bundle
from gpumanager.cli.support.doctor_look import look
from gpumanager.doctor.about_container import about_container, find_libcuda, is_container
from gpumanager.doctor.asking import DoctorQuestion
from gpumanager.doctor.bundle import Piece, piece
from gpumanager.doctor.checks import examine, is_wrong
from gpumanager.doctor.values import Finding, Verdict

SIGNS: Final = {
    Verdict.WELL: "[green]ok[/]",
    Verdict.NOTE: "[yellow]note[/]",
    Verdict.WRONG: "[bold red]wrong[/]",
}


def _flags_of_the_agent() -> Iterator[click.Parameter]:
    for parameter in agent.command.params:
        own = copy.copy(parameter)
        if isinstance(own, click.Option):
            own.hidden = True
        yield own


@click.command("doctor", cls=Flags, params=[*_flags_of_the_agent()])
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
    if is_container():
        findings = tuple(about_container(DoctorQuestion(find_libcuda).answer()))
    else:
        findings = examine(asyncio.run(look(settings)))
    if bundle is not None:
        make_bundle(bundle, settings, logs.directory, _reports(findings))
        return 0
    if as_json:
        click.echo(json.dumps(_as_json(findings), indent=2))
    else:
        _print_table(findings)
    return int(is_wrong(findings))


def _as_json(findings: Sequence[Finding]) -> Mapping[str, Any]:
    return {
        "wrong": _count(findings)[Verdict.WRONG],
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


def _reports(findings: Sequence[Finding]) -> Iterator[Piece]:
    """Yield the doctor's own words, for a bundle."""
    rows = (
        f"{one.verdict.value:6} {one.part}: {one.found}" + (f" -> {one.advice}" * bool(one.advice))
        for one in findings
    )
    yield piece("doctor.txt", "gpumanager doctor", "\n".join(rows) + "\n")
    yield piece("doctor.json", "gpumanager doctor --json", json.dumps(_as_json(findings), indent=2))


def _count(findings: Sequence[Finding]) -> Counter[Verdict]:
    return Counter(finding.verdict for finding in findings)


def _print_table(findings: Sequence[Finding]) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("part", no_wrap=True)
    table.add_column("found, and what to do", ratio=1, overflow="fold")
    for one in findings:
        advice = f"\n[bold]→ {escape(one.advice)}[/]" if one.advice else ""
        table.add_row(SIGNS[one.verdict], one.part, f"{escape(one.found)}{advice}")
    console = OutputConsole()
    console.print(table)
    console.print(_summary(findings), soft_wrap=True)


def _summary(findings: Sequence[Finding]) -> str:
    count = _count(findings)
    if wrong := count[Verdict.WRONG]:
        return f"[bold red]{wrong} wrong[/]: pods on this node would not get what they ask for."
    if notes := count[Verdict.NOTE]:
        return f"[green]Nothing is wrong[/]; {notes} to note."
    return "[green]All is well.[/]"

"""One table for people, one JSON for programs."""

from collections.abc import Sequence
from typing import Any, Final, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpu_check.outcome import Outcome, Verdict

STYLES: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.FIGURE: "cyan",
    Verdict.SKIP: "yellow",
}

LEGEND: Final = (
    "share: promised: got, percent of the GPU's time, by work per SM clock cycle against the same "
    "work without the shim. Overheads are medians of pairs measured in turns, in brackets their "
    "middle half. The shim of this check looks for its allocation in a folder of its own; "
    "otherwise it is the product's."
)


PLAIN_WIDTH: Final = 140
"""Columns where no terminal says how many there are."""


def passed(outcomes: Sequence[Outcome]) -> bool:
    return all(
        finding.verdict is not Verdict.FAIL for outcome in outcomes for finding in outcome.findings
    )


def console(file: TextIO) -> Console:
    return Console(file=file, highlight=False, width=None if file.isatty() else PLAIN_WIDTH)


def show(screen: Console, heading: str, outcomes: Sequence[Outcome]) -> None:
    table = Table(title=heading, title_justify="left", title_style="", box=None, pad_edge=False)
    table.add_column("check", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("seen", overflow="fold")
    for outcome in outcomes:
        for finding in outcome.findings:
            name = ", ".join(filter(None, (outcome.check, finding.about)))
            verdict = Text(finding.verdict.value, STYLES[finding.verdict])
            table.add_row(Text(name), verdict, Text(finding.said))
    screen.print(table)
    screen.print(Text(LEGEND))


def as_json(heading: dict[str, Any], outcomes: Sequence[Outcome], seconds: float) -> dict[str, Any]:
    return {
        **heading,
        "passed": passed(outcomes),
        "seconds": round(seconds, 1),
        "checks": [_check(outcome) for outcome in outcomes],
    }


def _check(outcome: Outcome) -> dict[str, Any]:
    findings = [
        {
            "verdict": finding.verdict.name.lower(),
            "said": finding.said,
            **({"about": finding.about} if finding.about else {}),
            "figures": dict(finding.figures),
        }
        for finding in outcome.findings
    ]
    return {"check": outcome.check, "seconds": round(outcome.seconds, 1), "findings": findings}

"""What a check comes to, written at once: a line of JSON for each fact and for each check.

    facts.jsonl     what was measured or read, with no verdict
    checks.jsonl    a check's findings, each with its verdict, as they come

Stages are processes of their own, and append to the same files.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_check.outcome import Finding

FACTS: Final = "facts.jsonl"
CHECKS: Final = "checks.jsonl"


@dataclass(frozen=True, slots=True)
class Results:
    """folder: where both files lie."""

    folder: Path

    def fact(self, fact: str, **values: object) -> None:
        self._append(FACTS, {"fact": fact, **values})

    def finding(self, stage: str, check: str, finding: Finding, seconds: float) -> None:
        """seconds: since the check began."""
        row = {
            "stage": stage,
            "check": check,
            **({"about": finding.about} if finding.about else {}),
            "verdict": finding.verdict.value,
            "said": finding.said,
            "seconds": round(seconds, 1),
            "figures": dict(finding.figures),
        }
        self._append(CHECKS, row)

    def facts(self) -> list[dict[str, Any]]:
        return self._lines(FACTS)

    def checks(self) -> list[dict[str, Any]]:
        return self._lines(CHECKS)

    def _append(self, name: str, row: Mapping[str, object]) -> None:
        """In one write: a process that is ended meanwhile leaves no part of it."""
        with (self.folder / name).open("ab", buffering=0) as file:
            file.write(json.dumps(row, default=str).encode() + b"\n")

    def _lines(self, name: str) -> list[dict[str, Any]]:
        """Those that are whole."""
        path, rows = self.folder / name, []
        for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
            with suppress(ValueError):
                rows.append(json.loads(line))
        return rows

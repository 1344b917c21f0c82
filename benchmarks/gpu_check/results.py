"""What a check comes to, written at once: a line of JSON for each fact and for each check.

    facts.jsonl     what was measured or read, with no verdict
    checks.jsonl    a check's findings, each with its verdict

Stages are processes of their own, and append to the same files.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpu_check.outcome import Outcome

FACTS: Final = "facts.jsonl"
CHECKS: Final = "checks.jsonl"


@dataclass(frozen=True, slots=True)
class Results:
    """folder: where both files lie."""

    folder: Path

    def fact(self, fact: str, **values: object) -> None:
        self._append(FACTS, {"fact": fact, **values})

    def outcome(self, stage: str, outcome: Outcome) -> None:
        for finding in outcome.findings:
            self._append(
                CHECKS,
                {
                    "stage": stage,
                    "check": outcome.check,
                    **({"about": finding.about} if finding.about else {}),
                    "verdict": finding.verdict.value,
                    "said": finding.said,
                    "seconds": round(outcome.seconds, 1),
                    "figures": dict(finding.figures),
                },
            )

    def facts(self) -> list[dict[str, Any]]:
        return self._lines(FACTS)

    def checks(self) -> list[dict[str, Any]]:
        return self._lines(CHECKS)

    def _append(self, name: str, row: Mapping[str, object]) -> None:
        with (self.folder / name).open("a") as file:
            file.write(json.dumps(row, default=str) + "\n")

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

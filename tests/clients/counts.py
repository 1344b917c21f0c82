"""The counts that suites had in their last run, and the table of them in docs/clients.md.

python -m tests.clients.counts     writes the table anew, of all suites that have been run
"""

import json
from pathlib import Path
from typing import Final

from tests.clients.sources import BUILT, ROOT
from tests.clients.suites import SUITES, Compared, Suite

PAGE: Final = ROOT / "docs" / "clients.md"
FIRST, LAST = "<!-- counts -->", "<!-- end of counts -->"
OUTCOMES: Final = ("passed", "failed", "skipped", "crashed", "hung")


def file_of(suite: Suite) -> Path:
    return BUILT / "counts" / f"{suite.name}: {suite.tests}.json".replace("/", "-")


def keep(suite: Suite, compared: Compared) -> None:
    file_of(suite).parent.mkdir(parents=True, exist_ok=True)
    bare, behind = compared.counts
    row = {
        "bare": bare,
        "behind": behind,
        "by_design": compared.by_design,
        "unsteady": compared.unsteady,
        "unlike": sorted(compared.unlike),
    }
    file_of(suite).write_text(json.dumps(row, indent=1))


def shown(counts: dict[str, int]) -> str:
    three = " / ".join(str(counts.get(outcome, 0)) for outcome in OUTCOMES[:3])
    others = [f"{counts[outcome]} {outcome}" for outcome in OUTCOMES[3:] if counts.get(outcome)]
    return ", ".join((three, *others))


def main() -> None:
    lines = ["| program | tests | bare | behind the shim | differences |", "|---|---|---|---|---|"]
    for suite in (suite for suite in SUITES if file_of(suite).exists()):
        row = json.loads(file_of(suite).read_text())
        told = [f"by design: {', '.join(row['by_design'])}"] if row["by_design"] else []
        if row["unsteady"]:
            told.append(f"unsteady, alike when run alone: {', '.join(row['unsteady'])}")
        told += [f"**unlike: {', '.join(row['unlike'])}**"] if row["unlike"] else []
        cells = (
            suite.name,
            suite.tests,
            shown(row["bare"]),
            shown(row["behind"]),
            "; ".join(told) or "none",
        )
        lines.append(f"| {' | '.join(cells)} |")
    before, _, rest = PAGE.read_text().partition(FIRST)
    PAGE.write_text("\n".join((before + FIRST, *lines, LAST)) + rest.partition(LAST)[2])


if __name__ == "__main__":
    main()

"""docs/compatibility.md says `tested` only where it names tests that exist, and why of each row."""

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from tests.docs.pages import DOCS, ROOT

PAGE: Final = (DOCS / "compatibility.md").read_text()
VERDICTS: Final = {"tested", "expected", "no"}
TEST: Final = re.compile(r"`(tests/[a-z0-9_/]+\.py)`")
BY_ALL: Final = ("everything else on this page", "the whole suite")


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every table's rows, without heads; the second is the verdict."""
    for line in text.splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if cells[1] != "verdict":
                yield cells


def faults(text: str) -> list[str]:
    """Rows without a known verdict or a reason, and those that claim tests that are not there."""
    wrong = []
    for name, verdict, *rest in rows(text):
        reason = " ".join(rest)
        named = TEST.findall(reason)
        if verdict not in VERDICTS:
            wrong.append(f"{name}: {verdict!r} is no verdict")
        elif verdict == "tested" and not named and not reason.startswith(BY_ALL):
            wrong.append(f"{name}: tested, and by which test?")
        elif not rest[-1]:
            wrong.append(f"{name}: what stands behind it?")
        wrong += [f"{name}: {one} is not there" for one in named if not is_a_test(one)]
    return wrong


def is_a_test(name: str) -> bool:
    path = ROOT / name
    return path.name.startswith("test_") and path.is_file()


def test_what_is_said_to_be_tested_is() -> None:
    assert len(list(rows(PAGE))) > 50
    assert faults(PAGE) == []


def test_values_for_a_distribution_are_values_of_the_chart() -> None:
    table = PAGE.split("\n## Distributions\n")[1].split("\n## ")[0]
    named = set(re.findall(r"`((?:[a-z][A-Za-z]*\.)+[a-zA-Z]+): [^`]+`", table))
    chart = yaml.safe_load((ROOT / "charts/gpu-manager/values.yaml").read_text())

    assert len(named) >= 5
    assert [name for name in named if has(chart, name.split("."))] == list(named)


def has(values: Any, keys: list[str]) -> bool:
    return not keys or (
        isinstance(values, dict) and keys[0] in values and has(values[keys[0]], keys[1:])
    )


def test_no_real_gpu_is_claimed() -> None:
    gpus = PAGE.split("\n## GPUs\n")[1].split("\n## ")[0]
    generations = [row for row in rows(gpus) if re.search("Blackwell|Pascal", row[0])]

    assert len(generations) == 2
    assert {row[1] for row in generations} == {"expected"}


def test_a_row_that_claims_too_much_is_found() -> None:
    head = "| a | verdict | what stands behind it |\n|---|---|---|\n"

    assert faults(f"{head}| x | tested | because |\n") == ["x: tested, and by which test?"]
    assert faults(f"{head}| x | tested | `tests/nothing.py` |\n") == [
        "x: tests/nothing.py is not there"
    ]
    assert faults(f"{head}| x | works | why |\n") == ["x: 'works' is no verdict"]
    assert faults(f"{head}| x | expected | |\n") == ["x: what stands behind it?"]
    assert faults(f"{head}| x | expected | why |\n") == []

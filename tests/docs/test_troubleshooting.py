"""The words that docs/troubleshooting.md explains are words that somebody says."""

import re

import pytest

from gpumanager.placement.values import Reason
from gpumanager.scheduler.scoring import unschedulable_reasons
from tests.docs.pages import DOCS

PAGE = (DOCS / "troubleshooting.md").read_text()
SAID = [text for text in vars(unschedulable_reasons).values() if isinstance(text, str)]
SAID += [
    re.sub(r"\s+", " ", path.read_text())
    for path in (DOCS.parent / "gpumanager/placement").glob("near*.py")
]
SAID += [(DOCS.parent / "gpumanager/scheduler/quota/rules.py").read_text()]


def quoted(heading: str) -> list[str]:
    """What stands in backticks in the first column of a table, up to where it is cut off."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    return [
        word.partition(" \u2026")[0] for cell in cells for word in re.findall("`([^`]+)`", cell)
    ]


@pytest.mark.parametrize("words", quoted("Why is my pod pending?"))
def test_a_reason_to_wait_is_one_of_the_extender_s(words: str) -> None:
    assert [one for one in SAID if words in one]


@pytest.mark.parametrize("words", quoted("Why did my pod fail at once?"))
def test_a_reason_to_refuse_is_one_of_the_node_s(words: str) -> None:
    begins = words.partition(":")[0]

    assert begins in {reason.value for reason in Reason}


def test_every_reason_of_a_node_is_explained_or_cannot_come_to_it() -> None:
    explained = {words.partition(":")[0] for words in quoted("Why did my pod fail at once?")}

    assert {reason.value for reason in Reason} - explained == {Reason.NOT_NEAR.value}

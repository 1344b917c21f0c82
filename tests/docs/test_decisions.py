"""Decisions and their history: each page has a title, a status and a row in its folder's list."""

import re
from pathlib import Path
from typing import Final

import pytest

DECISIONS: Final = Path(__file__).parents[2] / "docs" / "decisions"
FOLDERS: Final = (DECISIONS, DECISIONS / "history")
STATUS: Final = re.compile(r"^Status: (accepted|superseded by \[\d{4}\])")


def pages(folder: Path) -> list[Path]:
    return sorted(folder.glob("0*.md"))


def problems(name: str, text: str) -> list[str]:
    """What is wrong with one page."""
    title, blank, status, *_ = [*text.split("\n"), "", "", ""]
    found = []
    if not re.match(r"# [^\d]", title):
        found.append(f"{name}: the first line is not a title: {title!r}")
    if blank or not STATUS.match(status):
        found.append(f"{name}: the third line is not `Status: accepted` or `superseded by [NNNN]`")
    return found


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_decision_has_a_title_and_a_status(folder: Path) -> None:
    found = [line for page in pages(folder) for line in problems(page.name, page.read_text())]

    assert pages(folder)
    assert found == []


def test_a_page_without_a_status_is_found() -> None:
    assert problems("0001-x.md", "# Title\n\n**Decision.** …\n") != []
    assert problems("0001-x.md", "# 0001: Title\n\nStatus: accepted.\n") != []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_list_names_every_decision_by_its_title(folder: Path) -> None:
    rows = re.findall(
        r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )

    titles = [page.read_text().split("\n")[0].removeprefix("# ") for page in pages(folder)]
    assert rows == [
        (page.name[:4], page.name, title) for page, title in zip(pages(folder), titles, strict=True)
    ]


def test_a_superseded_decision_is_history() -> None:
    found = [page.name for page in pages(DECISIONS) if "\nStatus: superseded" in page.read_text()]

    assert found == []


def test_a_number_stands_for_one_decision() -> None:
    numbers = [page.name[:4] for folder in FOLDERS for page in pages(folder)]

    assert len(numbers) == len(set(numbers))

"""Decisions: each page has a title, a status and a row in the list."""

import re
from pathlib import Path
from typing import Final

DECISIONS: Final = Path(__file__).parents[2] / "docs" / "decisions"
PAGES: Final = sorted(DECISIONS.glob("0*.md"))
STATUS: Final = re.compile(r"^Status: (accepted|superseded by \[\d{4}\])")


def problems(name: str, text: str) -> list[str]:
    """What is wrong with one page."""
    title, blank, status, *_ = [*text.split("\n"), "", "", ""]
    found = []
    if not re.match(r"# [^\d]", title):
        found.append(f"{name}: the first line is not a title: {title!r}")
    if blank or not STATUS.match(status):
        found.append(f"{name}: the third line is not `Status: accepted` or `superseded by [NNNN]`")
    return found


def test_every_decision_has_a_title_and_a_status() -> None:
    found = [line for page in PAGES for line in problems(page.name, page.read_text())]

    assert PAGES
    assert found == []


def test_a_page_without_a_status_is_found() -> None:
    assert problems("0001-x.md", "# Title\n\n**Decision.** …\n") != []
    assert problems("0001-x.md", "# 0001: Title\n\nStatus: accepted.\n") != []


def test_the_list_names_every_decision_by_its_title() -> None:
    rows = re.findall(
        r"^\| \[(\d{4})\]\((\S+)\) \| (.+) \|$", (DECISIONS / "README.md").read_text(), re.MULTILINE
    )

    titles = [page.read_text().split("\n")[0].removeprefix("# ") for page in PAGES]
    assert rows == [
        (page.name[:4], page.name, title) for page, title in zip(PAGES, titles, strict=True)
    ]

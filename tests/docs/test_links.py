"""Every link of every page leads somewhere, and every page can be reached from the ladder."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, anchors, links, name_of, pages

ELSEWHERE = ("http://", "https://", "mailto:")


def broken(page: Path) -> list[str]:
    return [link for link in links(page) if not link.startswith(ELSEWHERE) and fault(page, link)]


def fault(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


def test_a_page_s_links_lead_somewhere() -> None:
    assert [(name_of(page), link) for page in pages() for link in broken(page)] == []


def test_every_page_is_on_the_ladder() -> None:
    """Decisions and the like by the page of their folder."""
    ladder = {(DOCS / link.partition("#")[0]).resolve() for link in links(DOCS / "README.md")}
    wanted = {page for page in DOCS.glob("*.md") if page.name != "README.md"}

    assert wanted - ladder == set()


def test_the_readme_leads_to_the_ladder() -> None:
    assert "docs/README.md" in links(ROOT / "README.md")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[one](missing.md)", ["missing.md"]),
        ("[one](#nowhere)", ["#nowhere"]),
        ("# A `b` c, d\n\n[one](#a-b-c-d)", []),
        ("# A\n\n# A\n\n[one](#a-1)", []),
        ("`[one](missing.md)`", []),
        ("```\n[one](missing.md)\n```", []),
        ("![one](missing.svg)", ["missing.svg"]),
    ],
)
def test_a_broken_link_is_found(text: str, found: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text + "\n")

    assert broken(page) == found

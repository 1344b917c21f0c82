"""How pages are taken apart."""

from pathlib import Path

import pytest

from tests.docs import pages

TEXT = """# One `two`

    indented

* an item

    that goes on

```sh run
fenced
```

Text [with](a.md#b) `a span` and `[no](link.md)`.

## One `two`
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(TEXT)
    return path


def test_blocks_are_fenced_or_indented_but_not_the_rest_of_an_item(page: Path) -> None:
    found = [(one.line, one.words, one.text) for one in pages.blocks(page)]

    assert found == [(3, None, "indented\n"), (9, ("sh", "run"), "fenced\n")]


def test_links_and_spans_are_those_of_the_text(page: Path) -> None:
    assert pages.links(page) == ["a.md#b"]
    assert pages.spans(page) == ["two", "a span", "[no](link.md)", "two"]


def test_headings_of_one_name_are_told_apart(page: Path) -> None:
    assert pages.anchors(page) == {"one-two", "one-two-1"}


def test_a_block_without_an_end_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("```sh run\nmake\n")

    with pytest.raises(AssertionError, match="line 1: a code block without an end"):
        pages.blocks(tmp_path / "page.md")

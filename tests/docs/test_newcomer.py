"""The script that follows the pages: which steps it takes, and what it says of each."""

from pathlib import Path

from tests.docs import newcomer
from tests.docs.pages import DOCS, ROOT, Block, blocks


def test_it_does_what_the_first_pages_say_in_their_order() -> None:
    found = list(newcomer.first_parts())

    assert found[0].text == "make demo\n"
    assert [one.page.name for one in found if one.page.name != "README.md"] == ["start.md"] * len(
        [one for one in blocks(DOCS / "start.md") if one.mark in {"make", "run"}]
    )
    assert not [one.text for one in found if "make test" in one.text]


def test_a_step_that_fails_is_told_and_the_next_one_is_taken(tmp_path: Path) -> None:
    texts = ("echo one >two\nfalse\necho never\n", "cat two\n")
    steps = [Block(ROOT / "README.md", 7, ("sh", "run"), text) for text in texts]

    found = list(newcomer.follow(steps, tmp_path, newcomer.stranger()))

    assert [(one.status, one.said) for one in found] == [(1, ""), (0, "one\n")]
    assert "exit 1" in str(found[0])
    assert "README.md:7" in str(found[0])


def test_a_stranger_has_none_of_our_programs_in_the_path() -> None:
    assert not [one for one in newcomer.stranger() if one.startswith(("PYTHONPATH", "GPUMANAGER"))]

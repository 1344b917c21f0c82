"""Who follows docs/extending.md to the letter has a policy, a back end, and a hook.

Each of its parts is played on a copy of the project: its files are written, its changes made
where it says, its commands run. A change that is there already counts as made: who follows the page
in a clone, committed or not, has the same tests pass.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs import shell
from tests.docs.pages import DOCS, ROOT, Block, blocks

PAGE = DOCS / "extending.md"
COPIED = (
    *("gpumanager", "vcuda_shim", "native", "tests", "docs", "benchmarks", "examples"),
    *("charts", "deploy"),  # for the chart's generator
)
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".*_cache", "clients")


class NotFound(Exception):
    """A change names lines that the file does not have, or has twice."""


def part(heading: str) -> list[Block]:
    """The blocks below a heading of the second level."""
    lines = PAGE.read_text().splitlines()
    start = lines.index(f"## {heading}") + 1
    end = next((n for n, line in enumerate(lines) if n > start and line[:3] == "## "), len(lines))
    return [block for block in blocks(PAGE) if start < block.line <= end]


def file_of(block: Block) -> str | None:
    """The file that a block is of, or changes."""
    words = [word for word in block.words or () if word.startswith("file=")]
    return words[0].removeprefix("file=") if words else None


def changed(text: str, change: str) -> str:
    """As patch would, by the lines around it, unless it is there already; raises NotFound."""
    lines = [(line[:1] or " ", line[1:] + "\n") for line in change.splitlines()]
    before = "".join(line for sign, line in lines if sign in " -")
    after = "".join(line for sign, line in lines if sign in " +")
    if text.count(after) == 1:
        return text
    if text.count(before) != 1:
        raise NotFound(f"{text.count(before)} times:\n{before}")
    return text.replace(before, after)


def apply(block: Block, file: Path) -> None:
    """One of its changes, or a file of it, in the place of a reader's own one of that name."""
    diff = block.language == "diff"
    file.write_text(changed(file.read_text(), block.text) if diff else block.text)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    target = tmp_path / "project"
    for name in COPIED:
        shutil.copytree(ROOT / name, target / name, ignore=LEFT_OUT)
    for name in ("pyproject.toml", "README.md", "Makefile"):
        shutil.copy(ROOT / name, target)
    return target


def follow(heading: str, copy: Path) -> list[subprocess.CompletedProcess[str]]:
    """Do all that the part says; what its blocks of commands said."""
    finished = []
    for block in part(heading):
        if file := file_of(block):
            apply(block, copy / file)
        elif block.mark == "changed":
            finished.append(shell.run(block.text, copy, copy))
    return finished


def test_a_policy_is_one_file_one_row_and_a_golden_table(copy: Path) -> None:
    (finished,) = follow("A policy", copy)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert " passed" in finished.stdout
    assert "keep-whole" in finished.stdout


def test_an_isolation_back_end_is_one_file_and_one_row(copy: Path) -> None:
    (finished,) = follow("An isolation back end", copy)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "test_a_grant_that_changes_is_held_as_it_is_prepared[mps] PASSED" in finished.stdout


@pytest.mark.namespaces
def test_a_hook_is_one_row_and_one_function(copy: Path) -> None:
    (finished,) = follow("A hook", copy)

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert " passed" in finished.stdout
    exported = (copy / "vcuda_shim/lib/shim/libcuda.so.1").read_bytes()
    assert b"cuFuncLoad\0" in exported
    assert "`cuFuncLoad`" in (copy / "docs/hooks.md").read_text().split("libcuda: not hooked")[0]


def test_a_change_is_made_once_and_one_that_fits_nowhere_is_an_error() -> None:
    made = changed("a\nb\nc\n", " a\n-b\n+d\n")

    assert made == changed(made, " a\n-b\n+d\n") == "a\nd\nc\n"
    for text in ("a\nc\n", "a\nb\na\nb\n"):
        with pytest.raises(NotFound):
            changed(text, " a\n-b\n+d\n")

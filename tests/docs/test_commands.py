"""Every command of the pages is run here, or says what it needs and names only what there is."""

import re
import subprocess
from pathlib import Path

import pytest

from gpumanager.sim.container.process import namespaces_available
from tests.docs import shell
from tests.docs.pages import MARKS, ROOT, Block, blocks, every_block, name_of, pages

SHELLS = ("sh", "console")
CHANGED = "changed"
"""Of extending.md: run with the page's changes, by test_extending.py."""

RUN_ELSEWHERE = ("docs/gallery.md", "README.md")
"""By tests/sim/node/test_examples.py and tests/test_readme.py: what they say is not run again."""

PROGRAMS = re.compile(r"(\$ )?((\S+/)?(gpumanager|python3?|pytest|pip)|make|kubectl|helm|git) ")
EVERY = every_block()
SHOWN = [block for block in EVERY if block.language in SHELLS]
RUN_THERE = {
    tuple(words)
    for one in SHOWN
    if one.mark == "run" and name_of(one.page) in RUN_ELSEWHERE
    for words in shell.commands(one)
}
RUN = [
    one
    for one in SHOWN
    if one.mark == "run" and not RUN_THERE.issuperset(map(tuple, shell.commands(one)))
]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_pages_show_commands() -> None:
    assert len(RUN) >= 5
    assert len(SHOWN) >= 25


def test_a_block_says_where_it_can_be_run() -> None:
    silent = [block.place for block in SHOWN if block.mark not in {*MARKS, CHANGED}]

    assert silent == [], f"write `sh` and one of {MARKS}"


def test_commands_stand_in_blocks_that_are_marked() -> None:
    other = [one for page in pages() for one in blocks(page) if one.language not in SHELLS]

    assert [one.place for one in other if one.words is None] == []
    said = [one.place for one in other if any(map(PROGRAMS.match, one.text.splitlines()))]
    assert said == []


def test_a_command_begins_with_the_name_of_a_program() -> None:
    """Not with a query for Prometheus, `rate(…)` or `job:metric:ratio`: those have own blocks."""
    said = [(block.place, words[0]) for block in SHOWN for words in shell.commands(block)]

    assert [one for one in said if not re.fullmatch(r"[\w./~$-]+", one[1])] == []
    assert [one for one in said if re.match("gpumanager_", one[1])] == []


def test_what_is_said_to_gpumanager_is_what_it_takes() -> None:
    said = [(block.place, call) for block in SHOWN for call in shell.calls(block)]

    assert [(place, word) for place, call in said for word in shell.unknown(call)] == []


def test_what_make_is_told_is_a_target(subtests: pytest.Subtests) -> None:
    for block in SHOWN:
        told = [words[1:] for words in shell.commands(block) if words[0] == "make"]
        names = {word for words in told for word in words if "=" not in word}
        with subtests.test(block.place):
            assert names - TARGETS == set()
            assert bool(told) == (block.mark == "make") or block.mark == "gpu"


def test_the_list_of_targets_has_two_columns() -> None:
    said = subprocess.run(
        ["make", "--no-print-directory", "help"],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )

    columns = {
        len(line) - len(line.partition(" ")[2].lstrip()) for line in said.stdout.splitlines()
    }
    assert len(columns) == 1


@pytest.mark.namespaces
@pytest.mark.parametrize("block", RUN, ids=lambda block: block.place)
def test_a_block_that_can_be_run_anywhere_works(block: Block, tmp_path: Path) -> None:
    if "simulate" in block.text and (missing := namespaces_available()):
        pytest.skip(missing)

    finished = shell.run(block.text, ROOT, tmp_path)

    unfit = "gpumanager doctor" in block.text
    assert finished.returncode in {0, int(unfit)}, finished.stderr
    assert finished.stdout.strip()
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (["plan", "--topology", "-", "--request=30"], []),
        (["plan", "--topologie", "-"], ["--topologie"]),
        (["doctor", "--checkpoint-path", "x", "--json"], []),
        (["plain"], ["plain"]),
        (["--version"], []),
    ],
)
def test_a_flag_that_is_not_there_is_found(call: list[str], found: list[str]) -> None:
    assert shell.unknown(call) == found


def test_commands_are_found_behind_variables_pipes_and_here_documents() -> None:
    text = "A=1 one <<'END' # what\nno\nEND\ntwo | .venv/bin/three && four \\\n  --five\n"
    block = Block(ROOT, 1, ("sh", "run"), text)

    assert list(shell.commands(block)) == [["one"], ["two"], ["three"], ["four", "--five"]]

"""`make bench` runs: each of its subjects, as a command, for as short as it can be."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHORT = {
    "placement": ("", r"complement of a ring +\d+\.\d\d \(\d+\.\d\d\)"),
    "hello": ("--rounds 3 --crowd 2", r"HELLO, 2 processes at once +p50 +\d+ us"),
    "starts": ("--rounds 1 --crowd 2 --crowds 2", r"2 at once, shim +s +\d+\.\d\d"),
    "hooks": (
        "--processes 1 --rounds 2 --calls 10",
        r"cuMemGetInfo_v2 +managed, 100 cores( +-?\d+\.\d){3}",
    ),
    "allocate": (
        "--containers 1 --pods 2 --starts 1 --in-memory",
        r"agent registered again +median \d+\.\d\d s",
    ),
    "claims": (
        "--claims 2 --pods 2 --burst 3 --rounds 1",
        r"slice told at most \d+ ms late",
    ),
    "sharing": ("--containers 2 --gpus 1 --rounds 3", r"idle: +\d+\.\d\d ms p50"),
    "scrape": ("--containers 2 --gpus 1", r"/metric, gpu-manager's: \d+ series, \d+\.\d kB"),
}
"""What makes each short, and its last figure."""
AT_LENGTH = {"agent"}
"""Has a file of its own: `test_agent_costs`."""


def test_these_are_all_of_them() -> None:
    rule = re.search(r"for subject in (.*); do", (ROOT / "Makefile").read_text())

    assert rule is not None
    assert set(rule[1].split()) == SHORT.keys() | AT_LENGTH


@pytest.mark.namespaces
@pytest.mark.parametrize("subject", SHORT)
def test_each_says_its_last_figure_and_ends_well(subject: str) -> None:
    options, figure = SHORT[subject]
    command = [sys.executable, ROOT / "benchmarks" / f"{subject}.py", *options.split()]

    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stderr
    assert re.search(figure, done.stdout), done.stdout

"""`make bench` runs: each of its subjects, as a command, for as short as it can be."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpumanager.sim.container.process import namespaces_available

ROOT = Path(__file__).resolve().parents[2]
MISSING = namespaces_available()
SHORT = {
    "placement": "",
    "hello": "--rounds 3 --crowd 2",
    "starts": "--rounds 1 --crowd 2 --crowds 2",
    "hooks": "--processes 1 --rounds 2 --calls 10",
    "allocate": "--containers 1 --pods 2 --starts 1 --in-memory",
    "sharing": "--containers 2 --gpus 1 --rounds 3",
}
AT_LENGTH = {"agent"}
"""Has a file of its own: `test_agent_costs`."""


def test_these_are_all_of_them() -> None:
    rule = re.search(r"for subject in (.*); do", (ROOT / "Makefile").read_text())

    assert rule is not None
    assert set(rule[1].split()) == SHORT.keys() | AT_LENGTH


@pytest.mark.namespaces
@pytest.mark.skipif(MISSING is not None, reason=MISSING or "")
@pytest.mark.parametrize(("subject", "options"), SHORT.items())
def test_each_says_figures_and_ends_well(subject: str, options: str) -> None:
    command = [sys.executable, ROOT / "benchmarks" / f"{subject}.py", *options.split()]

    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=300, check=False
    )

    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\d\.?\d* ?(?:ms|us|ns|s|%|MiB)?\b", done.stdout)) > 3, done.stdout

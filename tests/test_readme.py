"""Every command the README shows does its job."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpumanager.sim.container.process import namespaces_available

ROOT = Path(__file__).parent.parent


def commands() -> list[str]:
    """The lines of its `sh run` blocks, continued ones joined."""
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```sh run\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


def test_the_readme_shows_commands() -> None:
    assert len(commands()) >= 3


@pytest.mark.namespaces
@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_works(command: str) -> None:
    if "simulate" in command and (missing := namespaces_available()):
        pytest.skip(missing)
    here = command.replace(".venv/bin/gpumanager", f"{sys.executable} -m gpumanager")

    finished = subprocess.run(
        ["sh", "-c", here], check=False, capture_output=True, text=True, cwd=ROOT, timeout=600
    )

    unfit = "doctor" in command and finished.stdout.strip().endswith("what they ask for.")
    assert finished.returncode == int(unfit), finished.stderr
    assert finished.stdout.strip()

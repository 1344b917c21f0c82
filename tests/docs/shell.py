"""Blocks of commands, taken apart and run as a reader types them."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from gpumanager.cli import COMMANDS, gpumanager
from tests.docs.pages import ROOT, Block

SECONDS: Final = 600
MACHINE: Final = ROOT / "tests/gpu/topologies/two-socket-pcie-8.txt"
LOCAL: Final = ".venv/bin/"
"""Where `make` puts the programs; the tests have them somewhere else."""

_HERE: Final = re.compile(r"<<'?(\w+)'?([^\n]*)\n.*?^\1$", re.DOTALL | re.MULTILINE)
_ENDS: Final = {"|", "||", "&&", ";", "&", ">", ">>", "<"}


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command, without variables before it and without comments."""
    text = _HERE.sub(r"\2", block.text).replace("\\\n", " ")
    lines = text.splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        yield from _split(list(lexer))


def _split(words: list[str]) -> Iterator[list[str]]:
    found: list[str] = []
    for word in [*words, ";"]:
        if word not in _ENDS:
            found.append(word.removeprefix(LOCAL))
            continue
        while found and re.match(r"[A-Z_]+=", found[0]):
            found.pop(0)
        if found:
            yield found
        found = []


def calls(block: Block) -> list[list[str]]:
    """What is said to gpumanager, from the command's name on; also behind `kubectl exec … --`."""
    ours = [words for words in commands(block) if "gpumanager" in words]
    return [words[words.index("gpumanager") + 1 :] for words in ours]


def flags(command: str) -> set[str]:
    """All that a command of ours takes."""
    found = gpumanager.get_command(click.Context(gpumanager), command)
    assert found is not None, command
    options = [one for one in found.params if isinstance(one, click.Option)]
    return {flag for one in options for flag in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}


def unknown(call: list[str]) -> list[str]:
    """Words of a call that the command does not know."""
    if not call or call[0].startswith("-"):
        return [word for word in call if word not in {"--version", "--help", "-h"}]
    if call[0] not in COMMANDS:
        return call[:1]
    given = {word.partition("=")[0] for word in call[1:] if word.startswith("--")}
    return sorted(given - flags(call[0]))


def run(text: str, root: Path, at: Path) -> subprocess.CompletedProcess[str]:
    """Run a block in a folder `at` where the files of the checkout `root` are to be seen."""
    for entry in root.iterdir():
        if not (at / entry.name).exists():
            (at / entry.name).symlink_to(entry)
    bin_ = stand_ins(at)
    return subprocess.run(
        ["sh", "-ec", text.replace(LOCAL, "")],
        check=False,
        capture_output=True,
        text=True,
        cwd=at,
        timeout=SECONDS,
        env=environment(bin_, root),
    )


def stand_ins(at: Path) -> Path:
    """Programs by the names a reader has them by; `nvidia-smi` tells of a simulated machine."""
    folder = at / ".stand-ins"
    folder.mkdir()
    said = {
        "gpumanager": f'exec {sys.executable} -m gpumanager "$@"',
        "python": f'exec {sys.executable} "$@"',
        "pytest": f'exec {sys.executable} -m pytest -p no:cacheprovider "$@"',
        "nvidia-smi": f"exec cat {MACHINE}",
    }
    for name, line in said.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    return folder


def environment(programs: Path, root: Path) -> Mapping[str, str]:
    paths = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(root)}
    return {**os.environ, **paths, "GRPC_ENABLE_FORK_SUPPORT": "0", "PYTHONDONTWRITEBYTECODE": "1"}

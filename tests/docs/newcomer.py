"""Follow the pages as a newcomer does, word by word, with a stopwatch for each step.

    python -m tests.docs.newcomer [FOLDER]

clones this checkout's commit into FOLDER (a new temporary one without it), and runs there what
README and docs/start.md say, in their order: every block that is marked `sh make` under "Try it",
and every `sh run`. It needs what these pages say that it needs: Python, gcc, make, git; neither
root nor a GPU. The cluster part, docs/quickstart.md, is followed by
`tests/e2e/chart/test_quickstart.py` on the node of `make e2e`, by `follow`.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.docs.pages import DOCS, ROOT, Block, blocks

SECONDS: Final = 1800.0
UNFIT: Final = "pods on this node would not get what they ask for."
"""What the doctor ends with, and exit status 1, on a machine without a GPU: as its page says."""
LATER: Final = ("make setup", "make test")
"""Of README: for those who work on it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One block, as it was run. said: standard output and error."""

    place: str
    command: str
    seconds: float
    status: int
    said: str

    def __str__(self) -> str:
        outcome = "ok" if self.status == 0 else f"exit {self.status}"
        return f"{self.seconds:8.1f} s  {outcome:8}  {self.place:24} {self.command}"


def first_parts() -> Iterator[Block]:
    """What README and start tell somebody to do who only wants to see it."""
    for page in (ROOT / "README.md", DOCS / "start.md"):
        for block in blocks(page):
            if block.mark in {"make", "run"} and not block.text.startswith(LATER):
                yield block


def follow(steps: Iterable[Block], at: Path, environment: Mapping[str, str]) -> Iterator[Step]:
    """Run one after another in the folder `at`, whatever becomes of each."""
    for block in steps:
        yield run(block, at, environment)


def run(block: Block, at: Path, environment: Mapping[str, str]) -> Step:
    """One block in a shell that ends at the first command that fails."""
    began = time.monotonic()
    done = subprocess.run(
        ["sh", "-ec", block.text],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=at,
        env=dict(environment),
        timeout=SECONDS,
    )
    seconds = time.monotonic() - began
    unfit = done.returncode == 1 and done.stdout.rstrip().endswith(UNFIT)
    first = next(line for line in block.text.splitlines() if line and not line.startswith("#"))
    return Step(block.place, first[:70], seconds, 0 if unfit else done.returncode, done.stdout)


def stranger() -> dict[str, str]:
    """The environment of somebody who has nothing of this project."""
    ours = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "GPUMANAGER_")
    venv = os.environ.get("VIRTUAL_ENV", str(Path(sys.prefix)))
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    searched = kept.get("PATH", os.defpath).split(os.pathsep)
    return kept | {"PATH": os.pathsep.join(one for one in searched if not one.startswith(venv))}


def clone(target: Path) -> Step:
    """Of the commit that is checked out."""
    text = f"git clone --quiet --no-hardlinks {ROOT} {target}\n"
    block = Block(ROOT / "README.md", 1, ("sh", "make"), text)
    step = run(block, ROOT, os.environ)
    return Step("a clone", "git clone", step.seconds, step.status, step.said)


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="newcomer-"))
    target = folder / "gpu-manager"
    failed = 0
    began = time.monotonic()
    for step in [clone(target)] if not target.exists() else []:
        print(step, flush=True)
    for step in follow(first_parts(), target, stranger()):
        print(step, flush=True)
        if step.status:
            failed += 1
            print("".join(f"            | {line}\n" for line in step.said.splitlines()[-8:]))
    print(f"{time.monotonic() - began:8.1f} s  in {folder}, {failed} steps failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

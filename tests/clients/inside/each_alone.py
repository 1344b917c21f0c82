"""Run tests that are programs inside a container, each in a process of its own.

    each_alone.py go|rust|plain PROGRAM ...

How each ends is appended to the file $CLIENT_ENDS as by each_end.py; $CLIENT_ONLY, a JSON list,
names the only tests to run. A plain program is one test, a program of Go or Rust lists its own.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from error_names import error_names

_SKIPPED = re.compile(r"^--- SKIP|^test .* \.\.\. ignored", re.MULTILINE)


def tests_of(kind: str, program: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Names and commands."""
    if kind == "plain":
        yield Path(program).name, (program,)
        return
    lists = ("-test.list=.",) if kind == "go" else ("--list", "--format=terse")
    for line in subprocess.run(
        (program, *lists), check=True, capture_output=True, text=True
    ).stdout.splitlines():
        name = line.removesuffix(": test")
        words = (f"-test.run=^{name}$", "-test.v") if kind == "go" else ("--exact", name)
        yield name, (program, *words)


def end_of(command: Sequence[str]) -> tuple[str, str]:
    try:
        finished = subprocess.run(
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=float(os.environ["CLIENT_SECONDS"]),
        )
    except subprocess.TimeoutExpired:
        return "hung", ""
    output = finished.stdout + finished.stderr
    if finished.returncode < 0:
        return "crashed", f"signal {-finished.returncode}"
    if finished.returncode > 0:
        return "failed", " ".join(error_names(output))
    return ("skipped" if _SKIPPED.search(output) else "passed"), ""


def main() -> None:
    kind, *programs = sys.argv[1:]
    only = set(json.loads(os.environ.get("CLIENT_ONLY", "[]")))
    with Path(os.environ["CLIENT_ENDS"]).open("a") as ends:
        for program in programs:
            for name, command in tests_of(kind, program):
                if not only or name in only:
                    print(json.dumps((name, *end_of(command))), file=ends, flush=True)


if __name__ == "__main__":
    main()

"""The real allocator of kube-scheduler as a program: built once by Go, asked line by line."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.e2e.node.node_programs import CannotBuild, Go, _pin, cache

VERSION: Final = "1.37.2"
SOURCE: Final = Path(__file__).parent / "oracle" / "main.go"
SECONDS: Final = 1200.0


def program() -> Path:
    """Built where its source has changed since; raises CannotBuild."""
    if shutil.which("go") is None:
        raise CannotBuild("the real allocator is built with go, which is not in PATH")
    built = cache() / "bin" / f"allocator-{VERSION}"
    if built.exists() and built.stat().st_mtime >= SOURCE.stat().st_mtime:
        return built
    # In a module of its own: the one of the end-to-end tests may be in use.
    go = Go(cache() / "module" / f"allocator-{VERSION}", SECONDS)
    _pin(go, VERSION)
    folder = go.module / "allocator"
    folder.mkdir(exist_ok=True)
    shutil.copy(SOURCE, folder)
    built.parent.mkdir(parents=True, exist_ok=True)
    made = built.with_name(f".{built.name}")
    go.run("build", "-mod=mod", "-trimpath", "-ldflags", "-s -w", "-o", str(made), "./allocator")
    made.rename(built)
    return built


def answers(questions: Sequence[object]) -> list[Any]:
    """One for each question, as oracle/main.go describes them; raises CannotBuild."""
    lines = "".join(json.dumps(one) + "\n" for one in questions)
    ran = subprocess.run(
        [program()], input=lines, check=True, capture_output=True, text=True, timeout=300
    )
    return [json.loads(line) for line in ran.stdout.splitlines()]

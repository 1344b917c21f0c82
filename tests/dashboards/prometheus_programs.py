"""Build Prometheus and promtool of one version, once, outside the checkout.

    python -m tests.dashboards.prometheus_programs

Programs that are in PATH are used as they are. Else the Go module proxy has the sources; without
service discovery and without pages of its own they are built in some minutes.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.e2e.node.node_programs import SECONDS, CannotBuild, Go, cache

VERSION: Final = "3.13.5"
"""Its module is v0.313.5."""

MODULE: Final = "github.com/prometheus/prometheus"
PROGRAMS: Final = ("promtool", "prometheus")
PINNED: Final = "cloud.google.com/go => cloud.google.com/go v0.123.0"
"""As its own go.mod has it; a module that requires it must say so again."""


def find(name: str) -> Path | None:
    """One of PROGRAMS: installed, or built before."""
    if found := shutil.which(name):
        return Path(found)
    built = _folder() / name
    return built if os.access(built, os.X_OK) else None


def build(name: str) -> Path:
    """One of PROGRAMS, which is built where it is missing. Raises CannotBuild."""
    if there := find(name):
        return there
    if shutil.which("go") is None:
        raise CannotBuild(f"{name} is not in PATH, and building it needs go")
    go = Go(cache() / "module/prometheus", float(os.environ.get(SECONDS, "3600")))
    go.module.mkdir(parents=True, exist_ok=True)
    version = f"v0.{VERSION.replace('.', '', 1)}"
    lines = ("module prometheus", "go 1.26.0", f"require {MODULE} {version}", f"replace {PINNED}")
    (go.module / "go.mod").write_text("\n".join(lines) + "\n")
    _folder().mkdir(parents=True, exist_ok=True)
    made = _folder() / f".{name}"
    tags = ("-tags", "remove_all_sd,netgo", "-ldflags", "-s -w")
    go.run("build", "-mod=mod", "-trimpath", *tags, "-o", str(made), f"{MODULE}/cmd/{name}")
    return made.rename(_folder() / name)


def _folder() -> Path:
    return cache() / "bin" / f"prometheus-{VERSION}"


if __name__ == "__main__":
    try:
        for program in PROGRAMS:
            print(build(program))  # noqa: T201
    except CannotBuild as error:
        sys.exit(f"cannot build: {error}")

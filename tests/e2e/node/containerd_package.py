"""A newer containerd than this host's, as Debian packages it: fetched once, outside the checkout.

    python -m tests.e2e.node.containerd_package 2

A package of a later suite runs on an older Debian, as it needs no more than its libc. The mirror is
the one that this host's apt uses; the host's own sources and packages stay as they are.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.e2e.node.node_programs import CannotBuild, cache
from tests.native.table.fetch_real_libraries import NotThere, Suite, mirrors

VARIABLE: Final = "GPUMANAGER_E2E_CONTAINERD"
SUITES: Final = {"2": "forky"}
"""Debian's, by containerd's major version."""
PACKAGE: Final = "containerd"


def wanted() -> str:
    """The major version asked for; empty for the host's own, whatever it is."""
    return os.environ.get(VARIABLE) or ""


def fetch(major: str) -> Path:
    """The folder with its programs, fetched where they are missing. Raises CannotBuild."""
    folder = cache() / "bin" / f"containerd-{major}"
    if folder.is_dir():
        return folder
    if major not in SUITES:
        raise CannotBuild(f"containerd {major}: only {', '.join(SUITES)} is packaged for this")
    refused = "apt knows no mirror"
    for mirror in _mirrors():
        with tempfile.TemporaryDirectory() as work:
            try:
                suite = Suite(Path(work), mirror, SUITES[major], "main", (PACKAGE,))
                version = suite.version()
                print(f"fetching containerd {version}", flush=True)
                programs = suite.unpack(version) / "usr" / "bin"
            except NotThere as error:
                refused = str(error)
                continue
            return _kept(programs, folder)
    raise CannotBuild(f"containerd {major} from Debian's {SUITES[major]}: {refused}")


def _mirrors() -> tuple[str, ...]:
    try:
        return tuple(mirrors())
    except NotThere as error:
        raise CannotBuild(str(error)) from error


def _kept(programs: Path, folder: Path) -> Path:
    """A copy that appears when it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    shutil.copytree(programs, made, dirs_exist_ok=True)
    made.chmod(0o755)
    return made.rename(folder)


if __name__ == "__main__":
    try:
        print(fetch(sys.argv[1]))
    except CannotBuild as error:
        sys.exit(f"cannot be had: {error}")

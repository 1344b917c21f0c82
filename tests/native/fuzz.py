"""Build the fuzz targets of native/fuzz under address and undefined sanitizers, and run them.

    python tests/native/fuzz.py --seconds 600 [--seed N] [TARGET …]

A failure names the seed and the input; `--again NUMBER` with that seed runs that input alone.
"""

import argparse
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import sanitized

from vcuda_shim.build import NATIVE, includes, sources

FUZZ = NATIVE / "fuzz"
TARGETS = ("regions", "session")


def build(folder: Path, target: str) -> Path:
    """One target's program; its manager's socket, if it has one, lies in `folder`."""
    shim = sources(sanitized.SHIM / "core", sanitized.SHIM / "runtime")
    own = [path for path in shim if path.name != "real.c"]  # which needs a driver to load
    files = [FUZZ / f"{target}.c", FUZZ / "mutate.c", FUZZ / "pages.c", *own]
    flags = [f'-DVCUDA_DIRECTORY="{folder}/manager"', *includes(FUZZ)]
    return sanitized.build(folder / target, files, "address,undefined", flags)


def run(program: Path, seed: int, seconds: int, *again: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, str(seed), str(seconds), *again],
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds + 120,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=TARGETS, metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--again", type=int, metavar="NUMBER", help="this input alone")
    given = parser.parse_args(arguments)
    failed = False
    with tempfile.TemporaryDirectory(prefix="gmfuzz") as folder:
        for target in given.targets:
            program = build(Path(folder), target)
            alone = given.again is not None
            bound = given.again if alone else given.seconds
            ran = run(program, given.seed, bound, *(["only"] if alone else []))
            sys.stdout.write(f"{target}: {ran.stdout}{ran.stderr}\n".rstrip() + "\n")
            failed |= ran.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())

"""numba-cuda's own tests of its driver: `numba_tests.py SECONDS FOLDER ONLY`. Tells how each ended.

FOLDER: of the plugin that writes how tests end (tests/clients/inside). ONLY: a list of tests in
JSON; an empty one is all. Where a test ends the process, it has crashed, and those behind it are
run then. `cut`: time ran out before all had ended.
"""

import contextlib
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

from say import say, shim_in

TESTS = "numba/cuda/tests/cudadrv"
ONE_PART = 0.6
"""Of the time: for a single test."""

LOOK_SECONDS = 0.1


def pytest_configure():
    """As a plugin: the tests' package imports FileCheck, which a few tests of others use."""
    if importlib.util.find_spec("filecheck") is None:
        for name, member in (
            ("matcher", "Matcher"),
            ("options", "Options"),
            ("parser", "Parser"),
            ("parser", "pattern_for_opts"),
            ("finput", "FInput"),
        ):
            module = sys.modules.setdefault(f"filecheck.{name}", types.ModuleType(name))
            setattr(module, member, None)


def wait(process, deadline):
    """Whether the shim was in it; it is killed when time is out."""
    shim = False
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # it may have just ended
            shim = shim or shim_in(Path(f"/proc/{process.pid}/maps"))
        time.sleep(LOOK_SECONDS)
    process.kill()
    process.wait()
    return shim


def run(ends_file, deadline, folder, only):
    left = deadline - time.monotonic()
    root = importlib.util.find_spec("numba_cuda").submodule_search_locations[0]
    path = [folder, str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(filter(None, path)),
        "CLIENT_ENDS": str(ends_file),
        "CLIENT_ONLY": only,
        "CLIENT_SECONDS": str(math.ceil(ONE_PART * left)),
    }
    plugins = ("numba_tests", "each_end", "numba_fixture", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-W", "ignore", "-c"]
    command += [f"{folder}/pytest.ini", f"--rootdir={root}", "--import-mode=importlib"]
    # Else pytest imports the folder numba/cuda as `cuda`, and hides the bindings of that name.
    command += ["-o", "consider_namespace_packages=true", "--continue-on-collection-errors"]
    command += [*(f"-p{plugin}" for plugin in plugins), TESTS]
    process = subprocess.Popen(command, cwd=root, env=environment)
    return wait(process, deadline), process.returncode


def main(seconds, folder, only):
    deadline, shim, ends, left = time.monotonic() + float(seconds), False, {}, True
    with tempfile.TemporaryDirectory() as work:
        file = Path(work, "ends")
        file.touch()
        while left and time.monotonic() < deadline:
            seen, status = run(file, deadline, folder, only)
            shim = shim or seen
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            ends = {row[0]: row[1:] for row in rows if len(row) == 3}
            left = [row[0] for row in rows if row[0] not in ends]
            cut = time.monotonic() >= deadline
            if left and not cut:
                with file.open("a") as crashed:
                    crashed.write(json.dumps([left[-1], "crashed", str(status)]) + "\n")
    if not ends:
        raise SystemExit(f"pytest ended no test in {seconds} s: status {status}")
    print()  # pytest may have been ended in a line
    say(shim=shim, ends=ends, cut=cut)


if __name__ == "__main__":
    main(*sys.argv[1:])

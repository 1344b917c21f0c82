"""What `make e2e` does: programs built where missing, namespaces, the tests in them, a report.

Where no node can run, says so and why, and ends well; an error with GPUMANAGER_E2E_REQUIRED=1.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chart import helm_program
from tests.e2e.node import containerd_package, enclosure, node_programs

REPORT = "GPUMANAGER_E2E_REPORT"


def main(arguments: list[str]) -> int:
    try:
        if major := containerd_package.wanted():
            folder = containerd_package.fetch(major)
            os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    except node_programs.CannotBuild as error:
        return skipped(str(error))
    if why := enclosure.obstacle():
        return skipped(why)
    try:
        print(f"programs in {node_programs.build_node(node_programs.wanted())}", flush=True)
    except node_programs.CannotBuild as error:
        return skipped(str(error))
    try:
        print(f"helm is {helm_program.build()}", flush=True)
    except node_programs.CannotBuild as error:
        print(f"no helm, so the chart is not installed: {error}", file=sys.stderr)
    os.environ.setdefault(REPORT, str(Path("build", "e2e.json").absolute()))
    Path(os.environ[REPORT]).parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="gm-e2e-", dir="/tmp"))
    tests = [sys.executable, "-m", "pytest", "-m", "e2e", str(Path(__file__).parent), *arguments]
    try:
        return enclosure.enter(directory, tests)
    finally:
        if "GPUMANAGER_E2E_KEEP" not in os.environ:
            shutil.rmtree(directory, ignore_errors=True)


def skipped(why: str) -> int:
    print(f"SKIPPED: no real node here: {why}", file=sys.stderr)
    return int("GPUMANAGER_E2E_REQUIRED" in os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

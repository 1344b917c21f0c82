"""What `make e2e` does: programs built where missing, namespaces, the tests in them, a report.

Where no node can run, says so and why, and ends well; an error with GPUMANAGER_E2E_REQUIRED=1.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT
from tests.chart import helm_program
from tests.e2e.node import containerd_package, enclosure, node_programs, runc_program

REPORT = "GPUMANAGER_E2E_REPORT"


def main(arguments: list[str]) -> int:
    try:
        take_newer_runtime()
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
    directory = Path(tempfile.mkdtemp(prefix="gm-e2e-", dir="/tmp"))
    build_image(directory / "release")
    os.environ.setdefault(REPORT, str(Path("build", "e2e.json").absolute()))
    Path(os.environ[REPORT]).parent.mkdir(parents=True, exist_ok=True)
    tests = [sys.executable, "-m", "pytest", "-m", "e2e", str(Path(__file__).parent), *arguments]
    try:
        return enclosure.enter(directory, tests)
    finally:
        if "GPUMANAGER_E2E_KEEP" not in os.environ:
            shutil.rmtree(directory, ignore_errors=True)


def take_newer_runtime() -> None:
    """Where a newer containerd is wanted, it and a newer runc come before the host's in PATH.

    The host's runc serves too, for all but pods with user namespaces. Raises CannotBuild.
    """
    if not (major := containerd_package.wanted()):
        return
    folders = [str(containerd_package.fetch(major))]
    try:
        folders.append(str(runc_program.build()))
    except node_programs.CannotBuild as error:
        print(f"the host's runc runs the containers: {error}", file=sys.stderr)
    os.environ["PATH"] = os.pathsep.join([*folders, os.environ["PATH"]])


def build_image(folder: Path) -> None:
    """What a release has for this machine, for the pods of the chart; named to the tests."""
    if node_programs.IMAGE in os.environ:
        return
    here = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    command = (sys.executable, str(ROOT / "deploy" / "release.py"), str(folder), "--only", "image")
    done = subprocess.run(
        [*command, "--architecture", here], check=False, capture_output=True, text=True
    )
    if done.returncode:
        print(f"the chart's pods run this host's Python: {done.stderr[-300:]}", file=sys.stderr)
        return
    (archive,) = folder.glob("*.oci.tar")
    print(f"the image of a release is {archive}", flush=True)
    os.environ[node_programs.IMAGE] = str(archive)


def skipped(why: str) -> int:
    print(f"SKIPPED: no real node here: {why}", file=sys.stderr)
    return int("GPUMANAGER_E2E_REQUIRED" in os.environ)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What `make e2e-vm` does: the tests of `make e2e` in a virtual machine, where cgroups are v2 and
systemd makes those of pods.

    python -m tests.e2e.vm.run [ARGUMENTS OF PYTEST]

Where no machine can run, says so and why, and ends well; an error with GPUMANAGER_E2E_REQUIRED=1.
"""

import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.chart import helm_program
from tests.e2e.node import node_programs
from tests.e2e.node.enclosure import CGROUP_DRIVER
from tests.e2e.run import REPORT, skipped, take_newer_runtime
from tests.e2e.vm.machine import VirtualMachine, obstacle

SECONDS: Final = 3600.0 * 6
PASSED_ON: Final = ("GPUMANAGER_E2E_", "GPUMANAGER_HELM", "HOME", "PATH", "XDG_CACHE_HOME")
"""Variables that are inside what they are outside, by how they begin."""
KEEP: Final = "GPUMANAGER_E2E_KEEP"
CGROUP_V2: Final = "test -e /sys/fs/cgroup/cgroup.controllers"
STARTED: Final = "started"


def main(arguments: list[str]) -> int:
    if why := obstacle():
        return skipped(why)
    output = Path(tempfile.mkdtemp(prefix="gm-vm-", dir="/tmp"))
    try:
        return run_in(output, arguments)
    except node_programs.CannotBuild as error:
        return skipped(str(error))
    finally:
        if KEEP in os.environ:
            print(f"the node's logs are in {output}")
        else:
            shutil.rmtree(output, ignore_errors=True)


def run_in(output: Path, words: list[str]) -> int:
    """Raises CannotBuild."""
    node_programs.build_node(node_programs.wanted())
    take_newer_runtime()
    helm_program.build()
    status = VirtualMachine(output).run(script(words), SECONDS)
    if not (output / STARTED).exists():
        return skipped("User-Mode Linux does not start here; what it said is above")
    if (report := output / "e2e.json").exists():
        (ROOT / "build").mkdir(exist_ok=True)
        shutil.copy(report, ROOT / "build" / "e2e-vm.json")
    return 1 if status is None else status


def script(arguments: list[str]) -> str:
    """Runs inside."""
    known = {name: text for name, text in os.environ.items() if name.startswith(PASSED_ON)}
    variables = {CGROUP_DRIVER: "systemd"} | known
    variables |= {"GPUMANAGER_E2E_REQUIRED": "1", REPORT: "/mnt/e2e.json"}
    command = shlex.join([sys.executable, "-m", "tests.e2e.run", *arguments])
    lines = [
        *(f"export {name}={shlex.quote(text)}" for name, text in variables.items()),
        f"cd {ROOT} && {command}",
        "status=$?",
        *(["cp -r /tmp/gm-e2e-*/logs /mnt"] if KEEP in os.environ else []),
        "exit $status",
    ]
    return "\n".join([f"touch /mnt/{STARTED}", f"{CGROUP_V2} || exit 1", *lines, ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

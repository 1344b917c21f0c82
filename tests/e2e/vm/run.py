"""What `make e2e-vm` does: the tests of `make e2e` in a virtual machine, where cgroups are v2.

    python -m tests.e2e.vm.run [--emulated] [ARGUMENTS OF PYTEST]

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
from tests.e2e.node import containerd_package, node_programs
from tests.e2e.run import REPORT, skipped
from tests.e2e.vm.machine import BOOT_SECONDS, EMULATED, KVM, VirtualMachine, obstacle

SECONDS: Final = 3600.0 * 3
PASSED_ON: Final = ("GPUMANAGER_E2E_", "GPUMANAGER_HELM", "HOME", "PATH", "XDG_CACHE_HOME")
"""Variables that are inside what they are outside, by how they begin."""
CGROUP_V2: Final = "test -e /sys/fs/cgroup/cgroup.controllers"


def main(arguments: list[str]) -> int:
    emulated = "--emulated" in arguments
    if not emulated and (why := obstacle()):
        return skipped(why)
    output = Path(tempfile.mkdtemp(prefix="gm-vm-", dir="/tmp"))
    words = [one for one in arguments if one != "--emulated"]
    try:
        return run_in(output, words, emulated=emulated)
    except node_programs.CannotBuild as error:
        return skipped(str(error))
    finally:
        shutil.rmtree(output, ignore_errors=True)


def run_in(output: Path, words: list[str], *, emulated: bool) -> int:
    """Raises CannotBuild."""
    node_programs.build_node(node_programs.wanted())
    if major := containerd_package.wanted():
        containerd_package.fetch(major)
    helm_program.build()
    machine = VirtualMachine(output, EMULATED if emulated else KVM)
    if not emulated and machine.run(CGROUP_V2, BOOT_SECONDS) != 0:
        return skipped(f"/dev/kvm boots no kernel of Debian's within {BOOT_SECONDS:g} s")
    status = machine.run(script(words), SECONDS)
    if (report := output / "e2e.json").exists():
        shutil.copy(report, ROOT / "build" / "e2e-vm.json")
    return 1 if status is None else status


def script(arguments: list[str]) -> str:
    """Runs inside."""
    known = {name: text for name, text in os.environ.items() if name.startswith(PASSED_ON)}
    variables = known | {"GPUMANAGER_E2E_REQUIRED": "1", REPORT: "/mnt/e2e.json"}
    command = shlex.join([sys.executable, "-m", "tests.e2e.run", *arguments])
    exported = (f"export {name}={shlex.quote(text)}" for name, text in variables.items())
    return "\n".join([CGROUP_V2 + " || exit 1", *exported, f"cd {ROOT} && exec {command}", ""])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

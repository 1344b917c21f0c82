"""A login in a container: its processes have none of the container's environment.

The doctor looks before and after the recipe of docs/troubleshooting.md, in a root of its own with
an /etc that may be written, and a program takes memory until it is refused.
"""

import json
import subprocess
import sys
from pathlib import Path

import sandbox
import tenant

BARE = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
RECIPE = "echo /usr/local/nvidia/lib64 > /etc/ld.so.conf.d/nvidia.conf && ldconfig"


def logged_in(*command: str) -> subprocess.CompletedProcess[str]:
    """A command with the environment of a login."""
    return subprocess.run(command, env=BARE, check=False, capture_output=True, text=True)


def look() -> None:
    doctor = logged_in(sys.executable, "-m", "gpumanager", "doctor", "--json")
    (finding,) = json.loads(doctor.stdout)["findings"]
    tenant.say(doctor.returncode, finding["verdict"], finding["found"], "->", finding["advice"])
    program = logged_in(sys.executable, sandbox.__file__, "in")
    tenant.say(program.stdout.strip() or program.stderr.splitlines()[-1])


sandbox.enter({"bound"})
Path("/etc/ld.so.conf.d").mkdir()
Path("/etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
look()
logged_in("sh", "-c", RECIPE).check_returncode()
look()

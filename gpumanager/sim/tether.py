"""Run a command that ends when its parent does: `python -m gpumanager.sim.tether COMMAND …`.

A simulation that is killed cannot clean up; its agent must not stay behind.
"""

import os
import sys

from gpumanager.sim.container import kernel

if __name__ == "__main__":
    kernel.die_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - this is its purpose

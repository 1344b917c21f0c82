"""The driver's kernel modules and device nodes, where a node has started without them.

Until a first program uses a GPU nobody may have loaded nvidia-uvm, and without udev or X nobody
makes /dev/nvidiactl. The driver's own nvidia-modprobe does both; where it does not, modprobe as
gpu-manager runs it, and nodes by the numbers that the kernel gave.
"""

import logging
import os
import re
import stat
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

NEEDED: Final = ("nvidiactl", "nvidia-uvm")
"""Without these no program gets anywhere."""

HMM: Final = Path("/sys/module/nvidia_uvm/parameters/uvm_disable_hmm")
"""`Y` where kernels cannot reach pageable memory. With `N` and the open kernel modules they can:
what malloc gave moves into the GPU's memory without a call that could be limited."""

LOADERS: Final = (("nvidia-modprobe", "-u", "-c=0"), ("modprobe", "-va", "nvidia-uvm", "nvidia"))
LOAD_SECONDS: Final = 60.0

_MINOR: Final = re.compile(r"^Device Minor:\s*(\d+)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostKernel:
    """The kernel we run on. devices: where its nodes lie. root: where the driver is installed.

    Nothing raises: what failed is said.
    """

    devices: Path
    root: Path = Path("/")
    proc: Path = Path("/proc")

    def present(self) -> frozenset[str]:
        with suppress(OSError):
            return frozenset(os.listdir(self.devices))  # noqa: PTH208 - names are all it takes
        return frozenset()

    def majors(self) -> Mapping[str, int]:
        """Return those of character devices, by the name of their driver."""
        return parse_majors(_text(self.proc / "devices"))

    def minors(self) -> tuple[int, ...]:
        """Return those of the GPUs that the driver has found."""
        files = self.proc.glob("driver/nvidia/gpus/*/information")
        found = (_MINOR.search(_text(file)) for file in files)
        return tuple(sorted(int(match[1]) for match in found if match))

    def run(self, command: Sequence[str]) -> str | None:
        """Return None if it worked."""
        words = command if self.root == Path("/") else ("chroot", str(self.root), *command)
        try:
            done = subprocess.run(
                words,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=LOAD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"has not ended within {LOAD_SECONDS:g} s"
        except OSError as error:
            return error.strerror or type(error).__name__
        said = " ".join((done.stderr or done.stdout).decode(errors="replace").split())
        return None if done.returncode == 0 else said or f"status {done.returncode}"

    def make(self, name: str, major: int, minor: int) -> str | None:
        path = self.devices / name
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            path.chmod(0o666)
        except OSError as error:
            return error.strerror or type(error).__name__
        return None


def load_modules(kernel: HostKernel) -> tuple[str, ...]:
    """Load and make what is missing; returns what still is."""

    def say(failure: str | None, what: str) -> None:
        if failure is None:
            log.info("%s: done", what)
        else:
            log.warning("%s: %s", what, failure)

    for command in LOADERS:
        if kernel.present().issuperset(NEEDED):
            return ()
        say(kernel.run(command), f"loading the driver: {' '.join(command)}")
    majors = kernel.majors()
    frontend = majors.get("nvidia", majors.get("nvidia-frontend"))  # in newer and older drivers
    gpus = {f"nvidia{minor}": minor for minor in kernel.minors()}
    numbers = {name: (frontend, minor) for name, minor in {"nvidiactl": 255, **gpus}.items()}
    uvm = majors.get("nvidia-uvm")
    numbers |= {"nvidia-uvm": (uvm, 0), "nvidia-uvm-tools": (uvm, 1)}
    for name, (major, minor) in numbers.items():
        if major is not None and name not in kernel.present():
            what = f"device node {name} ({major}, {minor})"
            say(kernel.make(name, major, minor), f"making {what}")
    return tuple(name for name in NEEDED if name not in kernel.present())


def kernel_file(root: Path, path: Path) -> Path:
    """Return a file of the kernel below this root, or our own where that root shows none."""
    shown = root / path.relative_to("/")
    return shown if shown.exists() else path


def parse_majors(text: str) -> dict[str, int]:
    """Return the character devices of /proc/devices."""
    characters = text.partition("Block devices:")[0]
    rows = (line.split() for line in characters.splitlines())
    return {row[1]: int(row[0]) for row in rows if len(row) == 2 and row[0].isdigit()}  # noqa: PLR2004


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""

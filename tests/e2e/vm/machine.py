"""User-Mode Linux with this host's files: cgroup v2 whatever the host has, and no KVM.

A kernel that is a process: Debian's package has it with its modules. The host's root is its root,
read only below a tmpfs: nothing is installed, and nothing that it does stays. It has one processor
and no network. Its first process is `init.c`, which becomes systemd with one unit.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.e2e.node.node_programs import CannotBuild, cache

PACKAGE: Final = "user-mode-linux"
"""Debian's, of x86-64 alone."""
MODULE: Final = "overlay"
INIT: Final = Path(__file__).with_name("init.c")
NEEDED: Final = {
    "gcc": "gcc libc6-dev",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
    "mkfs.ext4": "e2fsprogs",
}
"""Programs of the host, and Debian's packages that have them."""
SYSTEMD: Final = Path("/lib/systemd/systemd")
UNIT: Final = """\
[Unit]
DefaultDependencies=no
SuccessAction=poweroff-force
FailureAction=poweroff-force

[Service]
Type=oneshot
ExecStart=/bin/sh -c 'sh /mnt/run.sh; echo $$? > /mnt/status'
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
LimitNOFILE=1048576
TasksMax=infinity
"""
"""The machine's only work, and its end."""
SECONDS: Final = 300.0
"""For what is fetched and built."""
MEMORY_MIB: Final = 6144
"""At most: it is a sparse file below /dev/shm, or TMPDIR where that is one of a tmpfs."""
DISK_BYTES: Final = 16 << 30
"""Of /tmp, at most: a sparse file."""
_VERSION: Final = re.compile(r"^Version: (\S+)", re.MULTILINE)


def obstacle() -> str | None:
    """Why no machine can run here, and what to do; None where it may."""
    if (architecture := os.uname().machine) != "x86_64":
        return f"User-Mode Linux is for x86-64, and this is {architecture}"
    if lacking := sorted(NEEDED[one] for one in NEEDED if shutil.which(one) is None):
        return f"a virtual machine needs packages of the host: apt-get install {' '.join(lacking)}"
    if ROOT.is_relative_to("/tmp"):
        return f"{ROOT} is not there in a virtual machine, whose /tmp is its own: clone elsewhere"
    return None if SYSTEMD.exists() else f"a virtual machine needs systemd: there is no {SYSTEMD}"


class VirtualMachine:
    """output: a folder of the host, which is /mnt inside. Raises CannotBuild."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._kernel = fetch_kernel()
        self._initrd = output / "initrd"
        self._initrd.write_bytes(b"".join(_initrd(self._kernel, output)))
        self._disk = output / "disk"
        with self._disk.open("wb") as disk:
            disk.truncate(DISK_BYTES)
        _said("mkfs.ext4", "-q", str(self._disk))

    def run(self, script: str, seconds: float) -> int | None:
        """A shell script as the machine's only work; its status, None where it did not end.

        What it prints is printed.
        """
        (self._output / "e2e.service").write_text(UNIT)
        (self._output / "run.sh").write_text(script)
        status = self._output / "status"
        status.unlink(missing_ok=True)
        # Its processes are the host's too: a group of their own, so that all of them end.
        process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL, process_group=0)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return int(status.read_text()) if status.exists() else None

    def _command(self) -> list[str]:
        return [
            str(self._kernel / "usr/bin/linux.uml"),
            f"mem={MEMORY_MIB}M",
            f"initrd={self._initrd}",
            f"files={self._output}",
            f"ubda={self._disk}",
            *("con=null", "con0=fd:0,fd:1"),
            *("quiet", "loglevel=1"),  # this kernel has errors to tell of at each start
        ]


def fetch_kernel() -> Path:
    """The unpacked package, fetched once into the cache. Raises CannotBuild."""
    found = _VERSION.search(_said("apt-cache", "show", "--no-all-versions", PACKAGE))
    if not found:
        raise CannotBuild(f"apt knows no {PACKAGE}")
    folder = cache() / f"{PACKAGE}-{found[1]}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent))
        _said("apt-get", "download", "-q", PACKAGE, folder=work)
        (package,) = work.glob("*.deb")
        _said("dpkg-deb", "-x", str(package), str(work / "unpacked"))
        (work / "unpacked").rename(folder)
        shutil.rmtree(work)
    return folder


def _initrd(kernel: Path, work: Path) -> Iterator[bytes]:
    """The archive that the kernel unpacks: `init` and its module."""
    program = work / "init"
    _said("gcc", "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(INIT))
    (module,) = kernel.glob(f"usr/lib/uml/modules/*/**/{MODULE}.ko")
    for folder in ("lower", "rw", "new"):
        yield _entry(folder, 0o40755)
    yield _entry(f"{MODULE}.ko", 0o100644, module.read_bytes())
    yield _entry("init", 0o100755, program.read_bytes())
    yield _entry("TRAILER!!!", 0)


def _entry(name: str, mode: int, content: bytes = b"") -> bytes:
    """Of a cpio archive in the `newc` format."""
    path = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + path
    return _padded(head) + _padded(content)


def _padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 4)


def _said(*command: str, folder: Path | None = None) -> str:
    """What it prints; raises CannotBuild."""
    try:
        return subprocess.run(
            command, check=True, capture_output=True, text=True, cwd=folder, timeout=SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotBuild(f"{command[0]} {command[1]}: {error}") from error

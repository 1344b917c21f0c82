"""A virtual machine with Debian's kernel and this host's files: cgroup v2 whatever the host has.

The host's root is its root, read only over 9p below a tmpfs: nothing is installed, and nothing that
it does stays. It has no network. Its first process is `init.c`.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.e2e.node.node_programs import CannotBuild, cache

KERNEL: Final = "linux-image-amd64"
"""Debian's newest of the host's suite. Its modules come as files of their own, 9p's among them."""
MODULES: Final = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
INIT: Final = Path(__file__).with_name("init.c")
SECONDS: Final = 300.0
"""For what is fetched and built."""
BOOT_SECONDS: Final = 60.0
MEMORY_MIB: Final = 6144
KVM: Final = ("-accel", "kvm", "-cpu", "host,-arch-capabilities")
EMULATED: Final = ("-accel", "tcg,thread=multi", "-cpu", "max")
"""Without KVM: twenty times slower (Python's start), for looking at one thing."""
_DEPENDS: Final = re.compile(r"Depends: (linux-image-\S+)")


def obstacle() -> str | None:
    """Why no machine can run here, and what to do; None where it may."""
    programs = {"qemu-system-x86_64": "qemu-system-x86", "gcc": "gcc", "dpkg-deb": "dpkg"}
    if lacking := sorted(programs[one] for one in programs if shutil.which(one) is None):
        return f"a virtual machine needs packages of the host: apt-get install {' '.join(lacking)}"
    return None if os.access("/dev/kvm", os.W_OK) else "there is no /dev/kvm, or no right to it"


class VirtualMachine:
    """acceleration: KVM or EMULATED. output: a folder of the host, which is /mnt inside."""

    def __init__(self, output: Path, acceleration: tuple[str, ...] = KVM) -> None:
        self._output = output
        self._acceleration = acceleration
        self._kernel = fetch_kernel()
        self._initrd = output / "initrd"
        self._initrd.write_bytes(b"".join(_initrd(self._kernel, output)))

    def run(self, script: str, seconds: float) -> int | None:
        """A shell script as the machine's only work; its status, None where it did not end.

        What it prints is printed.
        """
        (self._output / "run.sh").write_text(script)
        status = self._output / "status"
        status.unlink(missing_ok=True)
        try:
            subprocess.run(self._command(), check=False, stdin=subprocess.DEVNULL, timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        return int(status.read_text()) if status.exists() else None

    def _command(self) -> list[str]:
        (image,) = self._kernel.glob("boot/vmlinuz-*")
        folders = {"root": "/,readonly=on,multidevs=remap", "out": str(self._output)}
        shared = (
            word
            for tag, path in folders.items()
            for word in ("-virtfs", f"local,mount_tag={tag},security_model=passthrough,path={path}")
        )
        return [
            "qemu-system-x86_64",
            *self._acceleration,
            *("-smp", str(os.cpu_count()), "-m", str(MEMORY_MIB)),
            *("-kernel", str(image), "-initrd", str(self._initrd)),
            *("-append", "console=ttyS0 panic=-1 quiet"),
            *("-nic", "none", "-nographic", "-no-reboot"),
            *shared,
        ]


def fetch_kernel() -> Path:
    """The unpacked package, fetched once into the cache. Raises CannotBuild."""
    found = _DEPENDS.search(_said("apt-cache", "depends", KERNEL))
    if not found:
        raise CannotBuild(f"apt knows no {KERNEL}")
    folder = cache() / found[1]
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(dir=folder.parent))
        _said("apt-get", "download", "-q", found[1], folder=work)
        (package,) = work.glob("*.deb")
        _said("dpkg-deb", "-x", str(package), str(work / "unpacked"))
        (work / "unpacked").rename(folder)
        shutil.rmtree(work)
    return folder


def _initrd(kernel: Path, work: Path) -> Iterator[bytes]:
    """The archive that the kernel unpacks: `init` and its modules, in the order of their needs."""
    program = work / "init"
    _said("gcc", "-static", "-O1", "-Wall", "-Wextra", "-Werror", "-o", str(program), str(INIT))
    for folder in ("modules", "lower", "rw", "new"):
        yield _entry(folder, 0o40755)
    for number, module in enumerate(_in_order(kernel)):
        yield _entry(f"modules/{number:02}.ko", 0o100644, module.read_bytes())
    yield _entry("init", 0o100755, program.read_bytes())
    yield _entry("TRAILER!!!", 0)


def _in_order(kernel: Path) -> list[Path]:
    files = {one.stem.replace("-", "_"): one for one in kernel.glob("lib/modules/*/**/*.ko")}
    found: dict[str, Path] = {}

    def add(name: str) -> None:
        depends = re.search(rb"\0depends=([^\0]*)\0", files[name].read_bytes())
        for one in depends[1].decode().split(",") if depends and depends[1] else ():
            add(one.replace("-", "_"))
        found.setdefault(name, files[name])

    for name in MODULES:
        add(name)
    return list(found.values())


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

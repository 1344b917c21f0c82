"""Namespaces in which a whole node runs on this host without touching it.

    network   only a loopback of its own: every port is free, nothing leaves
    mounts    `/var/lib`, `/var/log` and `/run` are directories of the test; the kernel settings
              that a kubelet writes, and the names of hosts, are copies; `/dev` has the host's
              nodes without its GPUs, and room for others
    processes all end with the first of them, whatever happens

What namespaces do not cover, the node's cgroups, goes below one name and is removed by whoever
entered. Where systemd makes the cgroups, in a machine for the tests alone, processes have the
machine's pids, which systemd is told, and the folder with its socket stays in `/run`.

The children of this module: `python enclosure.py DIRECTORY COMMAND …` runs COMMAND as the first
process of such namespaces, of which the two paths are known to it as environment.
"""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from gpumanager.sim.container import kernel

DIRECTORY: Final = "GPUMANAGER_E2E_DIRECTORY"
"""Names the test's directory to who runs inside."""

TOOLS: Final = {
    "unshare": "util-linux",
    "ip": "iproute2",
    "openssl": "openssl",
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
}
"""Programs a node needs of its host, and Debian's packages that have them."""

ADDRESS: Final = "192.0.2.2"
"""The node's own, beside loopback, which a node must not have alone (an address for examples)."""

SERVICES: Final = {
    "gpu-manager-extender.kube-system.svc": "10.96.0.81",
    "gpu-manager-webhook.kube-system.svc": "10.96.0.82",
}
"""Names and addresses of Services, where a cluster has its DNS; `service_door` answers there."""

REPLICAS: Final = ("192.0.2.11", "192.0.2.12", "192.0.2.13")
"""Addresses of pods that are processes here."""

DEVICES: Final = Path("/dev")
MASKED: Final = ("/var/lib", "/var/log", "/run")
CGROUPS: Final = Path("/sys/fs/cgroup")
SETTINGS: Final = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
"""Kernel settings that a kubelet sets, which are the host's."""

CPUINFO: Final = Path("/proc/cpuinfo")
"""A kubelet does not start where it names no clock speed. Example: User-Mode Linux."""

CGROUP_DRIVER: Final = "GPUMANAGER_E2E_CGROUP_DRIVER"
"""`systemd`, or as without it `cgroupfs`."""
SYSTEMD: Final = "/run/systemd"
UNSHARE: Final = ("unshare", "--net", "--mount")
OWN_PIDS: Final = ("--pid", "--fork", "--kill-child", "--mount-proc")


def cgroup_driver() -> str:
    """What makes the cgroups of pods."""
    return os.environ.get(CGROUP_DRIVER) or "cgroupfs"


def unshare() -> tuple[str, ...]:
    return UNSHARE if cgroup_driver() == "systemd" else (*UNSHARE, *OWN_PIDS)


def obstacle() -> str | None:
    """Why no node can run here, and what to do; None where it can."""
    if os.geteuid() != 0:
        return "a node needs root"
    if lacking := sorted({TOOLS[one] for one in TOOLS if shutil.which(one) is None}):
        return f"a node needs packages of the host: apt-get install {' '.join(lacking)}"
    if not CGROUPS.is_dir() or not os.access(CGROUPS, os.W_OK):
        return f"a node needs cgroups: {CGROUPS} cannot be written"
    tried = subprocess.run(
        [*unshare(), "sh", "-c", "ip link set lo up && mount -t tmpfs none /mnt"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return f"a node needs namespaces: {tried.stderr.strip()}" if tried.returncode else None


def enter(directory: Path, command: list[str]) -> int:
    """Run a command in fresh namespaces, to its end; returns its status."""
    inside = [sys.executable, __file__, str(directory), *command]
    try:
        return subprocess.run([*unshare(), *inside], check=False).returncode
    finally:
        remove_cgroups(directory.name)


def make_cgroups(name: str) -> None:
    """A cgroup of this name in every hierarchy, with what a new one does not have by itself."""
    if (CGROUPS / "cgroup.controllers").exists():
        (CGROUPS / name).mkdir(exist_ok=True)
        for one in (CGROUPS, CGROUPS / name):
            controllers = (one / "cgroup.controllers").read_text().split()
            (one / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in controllers))
        return
    for hierarchy in CGROUPS.iterdir():
        (hierarchy / name).mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / setting).exists():
                (hierarchy / name / setting).write_text((hierarchy / setting).read_text())


def remove_cgroups(name: str) -> None:
    """Remove the cgroups below a name, whose processes have been killed, in every hierarchy."""
    roots = [CGROUPS / name, *CGROUPS.glob(f"*/{name}")]
    for _ in range(50):
        for root in roots:
            for place in sorted(root.rglob("*/"), reverse=True):
                with contextlib.suppress(OSError):
                    place.rmdir()
            with contextlib.suppress(OSError):
                root.rmdir()
        if not any(root.exists() for root in roots):
            return
        time.sleep(0.1)


def furnish(directory: Path) -> None:
    """Inside: the mounts and the loopback."""
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    # Linux mounts /proc in a user namespace only where one is seen whole: ours is not, see below.
    whole = directory / "proc"
    whole.mkdir()
    kernel.mount("proc", str(whole), "proc")
    copies = directory / "settings"
    for setting in SETTINGS:
        copy = copies / setting
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(Path("/proc/sys", setting).read_bytes())
        kernel.bind(str(copy), f"/proc/sys/{setting}")
    if "MHz" not in (processors := CPUINFO.read_text()):
        copy = copies / "cpuinfo"
        copy.write_text(f"{processors}cpu MHz\t\t: 1000.000\n")
        kernel.bind(str(copy), str(CPUINFO))
    for path in MASKED:
        own = directory / path.strip("/").replace("/", "-")
        own.mkdir(exist_ok=True)
        if path == "/run" and cgroup_driver() == "systemd":
            kept = own / "systemd"
            kept.mkdir()
            kernel.bind(SYSTEMD, str(kept))
        kernel.bind(str(own), path)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=60)
    for address in (ADDRESS, *REPLICAS, *SERVICES.values()):
        words = ("address", "add", f"{address}/32", "dev", "lo")
        subprocess.run(["ip", *words], check=True, timeout=60)
    own_devices(directory / "dev")
    # Mounts reach containers that ask for it, as where systemd is the first process.
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_SHARED)
    names = directory / "hosts"
    rows = (f"{address} {name}\n" for name, address in SERVICES.items())
    names.write_text(Path("/etc/hosts").read_text() + "\n" + "".join(rows))
    kernel.bind(str(names), "/etc/hosts")


def own_devices(new: Path) -> None:
    """A `/dev` to which nodes can be added that the host does not have."""
    new.mkdir()
    kernel.mount("none", str(new), "tmpfs", kernel.MS_NOSUID, "mode=755")
    for one in DEVICES.iterdir():
        status, place = one.lstat(), new / one.name
        if one.name.startswith("nvidia"):
            continue
        if stat.S_ISLNK(status.st_mode):
            place.symlink_to(one.readlink())
        elif stat.S_ISDIR(status.st_mode):
            place.mkdir()
            kernel.bind(str(one), str(place))
        elif stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            os.mknod(place, status.st_mode, status.st_rdev)
            place.chmod(stat.S_IMODE(status.st_mode))
    kernel.bind(str(new), str(DEVICES))


def first_process(command: list[str]) -> int:
    """Run the command and, as the first process has to, take every orphan's end."""
    started = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == started.pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    here = Path(sys.argv[1])
    furnish(here)
    os.environ[DIRECTORY] = str(here)
    sys.exit(first_process(sys.argv[2:]) & 0xFF)

"""The disk of a simulated node: one temporary directory with all that the node agent touches.

    dev/                        device files: the simulated GPUs
    root/                       a file system with the simulated driver, and its ld.so.cache
    kubelet/                    sockets of the device plugins, the kubelet's checkpoint
    plugins_registry/ plugins/  sockets of DRA drivers: by which they register, and are called
    dra_manager_state           the kubelet's checkpoint of claims
    cdi/static/ cdi/dynamic/    CDI spec files, as in /etc/cdi and /var/run/cdi
    pod-resources.sock          the kubelet's PodResources; pods-api.sock its Pods API
    cri.sock                    the container runtime's CRI
    vm/ checkpoint/ vdriver/    the agent's own: allocations, journal, driver volumes
    turns/                      and what containers that take turns are told
    agent.log
    node.lock                   held as long as the simulation lives

What a killed simulation could not remove, the next one does.
"""

import contextlib
import fcntl
import os
import platform
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.kernel_modules import HMM
from gpumanager.gpu.nvml import MEMINFO
from gpumanager.sim.gpu import LIBRARIES, SimulatedGpus, install_driver
from gpumanager.sim.machine import Machine
from gpumanager.volume.ldcache import FLAGS, LdEntry, write_ldcache

SHORT: Final = Path("/tmp")  # noqa: S108 - mkdtemp makes the name; sockets need a short path
PREFIX: Final = "gm-"
LOCK: Final = "node.lock"
_SONAME: Final = re.compile(r".*\.so(\.[0-9]+)?")


class NodeDisk:
    """Paths of one simulated node, all below `base`. lock: descriptor of the held lock."""

    def __init__(self, base: Path, lock: int) -> None:
        self.base, self.lock = base, lock
        self.root = base / "root"
        self.libraries = self.root / LIBRARIES
        self.kubelet = base / "kubelet"
        self.plugins_registry, self.plugins = base / "plugins_registry", base / "plugins"
        self.cdi = base / "cdi" / "static", base / "cdi" / "dynamic"
        self.pod_resources, self.pods_api = base / "pod-resources.sock", base / "pods-api.sock"
        self.runtime = base / "cri.sock"
        self.virtual, self.turns = base / "vm", base / "turns"
        self.checkpoint, self.volumes = base / "checkpoint", base / "vdriver"
        self.agent_log = base / "agent.log"

    def remove(self) -> None:
        """Remove all of the node; once."""
        shutil.rmtree(self.base, ignore_errors=True)
        os.close(self.lock)


def make_disk() -> NodeDisk:
    """Make a fresh directory with a name short enough for the sockets in it."""
    parent = SHORT if SHORT.is_dir() else Path(tempfile.gettempdir())
    sweep(parent)
    try:
        base = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        # The lock goes with this process; it gets its name when it is held already.
        temporary = base / f"{LOCK}.new"
        lock = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        temporary.rename(base / LOCK)
        return NodeDisk(base, lock)
    except OSError as error:
        raise GpuManagerError(f"no place for the simulated node's files: {error}") from error


def sweep(parent: Path) -> None:
    """Remove what killed simulations left: directories whose lock nobody holds any more."""
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with contextlib.suppress(OSError):
            descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(descriptor)


def furnish(disk: NodeDisk, machine: Machine) -> SimulatedGpus:
    """Put GPUs and driver in place; the caller closes the GPUs."""
    gpus = SimulatedGpus.create(disk.base, machine)
    install_driver(disk.root, machine.cuda_version)
    write_cache(disk)
    write_kernel(disk, machine)
    kubelets = (disk.kubelet, disk.plugins_registry, disk.plugins)
    for directory in (*kubelets, *disk.cdi, disk.virtual, disk.checkpoint, disk.volumes):
        directory.mkdir(parents=True, exist_ok=True)
    return gpus


def write_kernel(disk: NodeDisk, machine: Machine) -> None:
    """Write the kernel's files on the driver's module, and on memory that a GPU shares."""
    memory = max(gpu.memory for gpu in machine.topology.gpus)
    files = {
        HMM: "N\n" if machine.driver.hmm else "Y\n",
        MEMINFO: f"MemTotal: {memory >> 10} kB\n",
    }
    for name, text in files.items():
        path = disk.root / name.relative_to("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_cache(disk: NodeDisk) -> None:
    """Write what ldconfig would have written after the driver's installation."""
    flags = FLAGS.get(platform.machine())
    if flags is None:
        raise GpuManagerError(f"no simulated driver for this processor, {platform.machine()}")
    entries = [
        LdEntry(path.name, f"/{path.relative_to(disk.root)}", flags)
        for path in sorted(disk.libraries.iterdir())
        if _SONAME.fullmatch(path.name)
    ]
    cache = disk.root / "etc" / "ld.so.cache"
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_bytes(write_ldcache(entries))

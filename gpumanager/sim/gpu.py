"""Simulated GPUs: their device nodes, their driver, and what they themselves account.

The device nodes are files of a directory: `nvidiactl` is the state that every process on the
simulated machine shares, and a GPU is visible exactly where its `nvidia<minor>` is. The account is
kept by the simulated driver per tenant, which is a mount namespace and so a container; it knows
nothing of limits and is therefore what limits can be checked against.

The kernel gives the inode of a mount namespace that is gone to the next new one. Since Linux 6.11
the account tells the two apart; before, hold the namespace open until its account was read, and
`retire` it then.
"""

import os
import platform
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import vcuda_shim
from gpumanager.errors import GpuManagerError, InputError
from gpumanager.gpu.values import GpuUUID, Level
from gpumanager.sim.machine import DriverBehaviour, Machine
from vcuda_shim import _sim

T = TypeVar("T")

LEVELS: Final = {
    Level.BOARD: 0,
    Level.PIX: 10,
    Level.PXB: 20,
    Level.PHB: 30,
    Level.NODE: 40,
    Level.SYS: 50,
}
"""As NVML numbers them (nvmlGpuTopologyLevel_t)."""

LIBRARIES: Final = Path("usr/lib", f"{platform.machine()}-linux-gnu")
"""Where Debian's packages put the driver, under the root."""

CUDA_13: Final = 13000
"""From this version on a machine has the newer one of the two simulated releases."""

SONAMES: Final = {"libcuda.so": "libcuda.so.1", "libnvidia-ml.so": "libnvidia-ml.so.1"}


@dataclass(frozen=True, slots=True)
class DeviceAccount:
    """One tenant on one GPU; bytes as the driver takes them, times of CLOCK_MONOTONIC, 0 for never.

    refused: allocations that the GPU had no room for. busy_ns: GPU time received. sm_ns: the same,
    times the SMs that worked. launches: of kernels.
    """

    bytes_now: int
    bytes_peak: int
    refused: int
    busy_ns: int
    first_work_ns: int
    last_end_ns: int
    launches: int
    sm_ns: int


@dataclass(frozen=True, slots=True)
class TenantAccount:
    """What one container, by the inode of its mount namespace, holds and held on every GPU."""

    mount_namespace: int
    serial: int
    devices: Mapping[GpuUUID, DeviceAccount]


@dataclass(frozen=True, slots=True)
class Occupant:
    """One process on one GPU; allocations: how many it has now.

    bytes_now: what it holds. bytes_told: what NVML says that it holds.
    """

    pid: int
    gpu: GpuUUID
    mount_namespace: int
    bytes_now: int
    bytes_told: int
    allocations: int
    busy_ns: int


@dataclass(frozen=True, slots=True)
class Utilization:
    """What NVML tells of a process on a GPU: percent, and the end of the latest sample period that
    it is told of, by CLOCK_MONOTONIC.
    """

    pid: int
    percent: int
    sampled_ns: int


@dataclass(slots=True)
class SimulatedGpus:
    """The GPUs of one simulated machine. Close it; processes that use it keep what they have."""

    machine: Machine
    device_directory: Path
    _state: Any = field(repr=False)

    @classmethod
    def create(cls, directory: Path, machine: Machine) -> Self:
        """Make `directory`/dev with a machine's device nodes; raises when it is there already."""
        devices = directory / "dev"
        control = devices / "nvidiactl"
        try:
            devices.mkdir(parents=True, exist_ok=True)
            _check(_sim.lib.sim_create(bytes(control), _description(machine)), "creating", control)
            for name in ("nvidia-uvm", *(f"nvidia{gpu.minor}" for gpu in machine.topology.gpus)):
                (devices / name).touch()
        except OSError as error:
            raise GpuManagerError(f"{devices}: no simulated device nodes: {error}") from error
        state = _sim.ffi.new("struct sim_state **")
        _check(_sim.lib.sim_open(bytes(control), state), "opening", control)
        return cls(machine, devices, state[0])

    def tenants(self) -> Sequence[TenantAccount]:
        """Return the tenants in the order in which they first used a GPU."""
        ask = _sim.lib.account_tenants
        accounts = _filled("struct sim_tenant[]", ask, self.state, self._account)
        return sorted(accounts, key=lambda account: account.serial)

    def retire(self, mount_namespace: int) -> TenantAccount | None:
        """End the account of a container that has ended, and return it."""
        row = _sim.ffi.new("struct sim_tenant *")
        found = _sim.lib.account_retire(self.state, mount_namespace, row) == 0
        return self._account(row[0]) if found else None

    def processes(self) -> Sequence[Occupant]:
        """Return every process that has a context or memory, once per GPU."""
        ask = _sim.lib.account_occupants
        return tuple(_filled("struct sim_occupant[]", ask, self.state, self._occupant))

    def device_bytes(self, gpu: GpuUUID) -> int:
        """Return what all processes hold on a GPU; raises KeyError for one of another machine."""
        return int(_sim.lib.account_used(self.state, self.machine.position(gpu)))

    def busy_percent(self, gpu: GpuUUID) -> int:
        """Return for how much of its last sample period anybody used a GPU; KeyError as above."""
        return int(_sim.lib.account_busy_percent(self.state, self.machine.position(gpu)))

    def lost_ns(self, gpu: GpuUUID) -> int:
        """Return GPU time lost while work waited for a switch to its process; KeyError as above."""
        return int(_sim.lib.account_lost_ns(self.state, self.machine.position(gpu)))

    def utilization(self, gpu: GpuUUID, after_ns: int) -> Sequence[Utilization] | None:
        """Return what NVML answers of sample periods that ended later; None: it never does.

        KeyError as above.
        """
        rows = _sim.ffi.new("struct sim_utilization[]", _sim.lib.SIM_PROCESSES)
        ask = _sim.lib.account_utilization
        count = ask(self.state, self.machine.position(gpu), after_ns, rows)
        if count < 0:
            return None
        return tuple(Utilization(row.pid, row.percent, row.sample_ns) for row in rows[0:count])

    def continue_stopped(self) -> int:
        """Continue processes that were stopped inside of the driver, where no kernel stops any.

        Return how many. To be called again and again: until then everybody waits for them.
        """
        return int(_sim.lib.stopped_continue(self.state))

    def close(self) -> None:
        """Let go of the state; its files stay."""
        if self._state is not None:
            _sim.lib.sim_close(self._state)
            self._state = None

    @property
    def state(self) -> Any:
        if self._state is None:
            raise GpuManagerError(f"{self.device_directory}: these simulated GPUs are closed")
        return self._state

    def _occupant(self, row: Any) -> Occupant:
        uuid_of = self.machine.topology.gpus[row.gpu].uuid
        return Occupant(**{**_values(Occupant, row), "gpu": uuid_of})

    def _account(self, row: Any) -> TenantAccount:
        gpus = zip(self.machine.topology.gpus, row.gpus, strict=False)
        devices = {gpu.uuid: DeviceAccount(**_values(DeviceAccount, use)) for gpu, use in gpus}
        return TenantAccount(row.mount_namespace, row.serial, devices)


def install_driver(root: Path, cuda_version: int) -> Path:
    """Lay the simulated driver under `root` as a package would; returns the libraries' folder."""
    folder = root / LIBRARIES
    folder.mkdir(parents=True, exist_ok=True)
    for file in driver_files(cuda_version):
        target = folder / file.name
        target.unlink(missing_ok=True)
        try:
            os.link(file, target)
        except OSError:  # another filesystem
            shutil.copy2(file, target)
        name = file.name[: file.name.index(".so") + len(".so")]
        _symlink(folder / SONAMES[name], file.name)
        _symlink(folder / name, SONAMES[name])
    return folder


def driver_files(cuda_version: int) -> list[Path]:
    """Return libcuda and libnvidia-ml, in this order, of the release for that version of CUDA."""
    newer = cuda_version >= CUDA_13
    folder = vcuda_shim.SIMULATED_DRIVER_13 if newer else vcuda_shim.SIMULATED_DRIVER
    files = sorted(folder.glob("lib*.so.*.*"))
    if len(files) != len(SONAMES):
        raise GpuManagerError(f"{folder}: no simulated driver; build it: pip install .")
    return files


def _symlink(link: Path, target: str) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


def _values(kind: type, row: Any) -> dict[str, Any]:
    """Return the fields of a value by those of the C struct, which has other names for some."""
    names = {"bytes_now": "bytes", "bytes_peak": "peak_bytes", "bytes_told": "told_bytes"}
    return {one.name: getattr(row, names.get(one.name, one.name)) for one in fields(kind)}


def _filled(kind: str, ask: Any, state: Any, read: Callable[[Any], T]) -> list[T]:
    """Read all rows of a call that fills an array and returns how many there are.

    Here, because a row is a place in the array, and does not keep it.
    """
    capacity = 64
    while True:
        rows = _sim.ffi.new(kind, capacity)
        count = ask(state, rows, capacity)
        if count <= capacity:
            return [read(rows[place]) for place in range(count)]
        capacity = count


def _check(result: int, doing: str, path: Path) -> None:
    if result != 0:
        raise GpuManagerError(f"{doing} {path}: {os.strerror(-result)}")


def _description(machine: Machine) -> Any:
    """Return the machine as the simulated driver reads it; raises InputError if it cannot."""
    gpus = machine.topology.gpus
    if not 0 < len(gpus) <= _sim.lib.SIM_GPUS:
        raise InputError(machine.name, f"{len(gpus)} GPUs; a machine has 1 to {_sim.lib.SIM_GPUS}")
    described: Any = _sim.ffi.new("struct sim_machine *")
    described.gpu_count = len(gpus)
    described.cuda_version = machine.cuda_version
    if not 0 <= machine.driver.queue_depth <= _sim.lib.SIM_QUEUE_DEPTH:
        most = _sim.lib.SIM_QUEUE_DEPTH
        raise InputError(machine.name, f"a queue of {machine.driver.queue_depth}; at most {most}")
    for name in DriverBehaviour.__slots__:
        setattr(described.driver, name, getattr(machine.driver, name))
    version = driver_files(machine.cuda_version)[0].name.partition(".so.")[2]
    described.driver_version = version.encode()
    for a, gpu in enumerate(gpus):
        model, row = machine.models.get(gpu.model), described.gpus[a]
        if model is None:
            raise InputError(machine.name, f"GPU {gpu.index}: unknown model {gpu.model!r}")
        try:
            domain, bus, device = (int(part, 16) for part in gpu.bus_id.split(".")[0].split(":"))
            row.uuid = uuid.UUID(gpu.uuid.removeprefix("GPU-")).bytes
        except ValueError as error:
            raise InputError(machine.name, f"GPU {gpu.index}: {gpu.bus_id}, {gpu.uuid}") from error
        row.name = model.name.encode()[: _sim.lib.SIM_NAME_SIZE - 1]
        for name in ("context_bytes", "reserved_bytes", "link_bandwidth", "memory_bandwidth"):
            setattr(row, name, getattr(model, name))
        row.memory_bytes = gpu.memory
        row.pci_domain, row.pci_bus, row.pci_device = domain, bus, device
        row.minor = gpu.minor
        row.numa_node = _sim.lib.SIM_NOWHERE if gpu.numa_node is None else gpu.numa_node
        row.sm_count, row.threads_per_sm = model.sm_count, model.max_threads_per_sm
        row.capability_major, row.capability_minor = model.compute_capability
        for b in range(a):
            bond = machine.topology.bond(a, b)
            described.level[a][b] = described.level[b][a] = LEVELS[bond.level]
            described.nvlinks[a][b] = described.nvlinks[b][a] = bond.nvlinks
    return described

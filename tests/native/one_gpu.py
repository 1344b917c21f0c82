"""One simulated GPU, its own account, and containers with a share of it behind the shim."""

from pathlib import Path
from typing import Any

from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.sim.container.values import BindMount
from gpumanager.sim.gpu import driver_files
from gpumanager.sim.libraries import lay_out
from gpumanager.units import GIB, Bytes
from tests.native.shim_container import GPU, Container
from vcuda_shim._sim import ffi, lib

PHYSICAL = 16 * GIB
LIMIT = 2 * GIB


class SimulatedGpu:
    """One simulated GPU, and its own account of who used it."""

    def __init__(
        self,
        directory: Path,
        memory_bandwidth: int = 0,
        cuda_version: int = 12050,
        memory: int = PHYSICAL,
        **driver: int,
    ) -> None:
        """driver: its behaviour, as struct sim_driver has it."""
        directory.mkdir()
        machine: Any = ffi.new("struct sim_machine *")
        machine.gpu_count, machine.cuda_version = 1, cuda_version
        self.cuda_version = cuda_version
        machine.driver_version = b"555.58.02"
        machine.driver.page_bytes, machine.driver.slab_most_bytes = 2 << 20, 1 << 20
        for name, value in driver.items():
            setattr(machine.driver, name, value)
        gpu = machine.gpus[0]
        gpu.name, gpu.uuid, gpu.memory_bytes = b"Simulated", bytes(range(16)), memory
        gpu.memory_bandwidth = memory_bandwidth
        gpu.sm_count, gpu.threads_per_sm, gpu.capability_major = 40, 1024, 7
        state = directory / "nvidiactl"
        assert lib.sim_create(str(state).encode(), machine) == 0
        for name in ("nvidia0", "nvidia-uvm"):
            (directory / name).touch()
        self.devices = tuple(
            BindMount(str(directory / name), f"/dev/{name}")
            for name in ("nvidiactl", "nvidia0", "nvidia-uvm")
        )
        opened: Any = ffi.new("struct sim_state **")
        assert lib.sim_open(str(state).encode(), opened) == 0
        self._state = opened[0]

    def close(self) -> None:
        lib.sim_close(self._state)

    def tenants(self) -> list[Any]:
        """Accounts in the order of their first launch."""
        out: Any = ffi.new("struct sim_tenant[]", lib.SIM_TENANTS)
        count = lib.account_tenants(self._state, out, lib.SIM_TENANTS)
        uses = [ffi.new("struct sim_usage *", out[n].gpus[0]) for n in range(count)]  # copies
        return sorted(uses, key=lambda use: use.first_work_ns)


class GpuNode:
    """Containers with a share of the one GPU."""

    def __init__(self, work: Path, gpu: SimulatedGpu, manager: VirtualManager) -> None:
        self._work, self._gpu, self._manager = work, gpu, manager
        cuda, nvml = driver_files(gpu.cuda_version)
        self._libraries = lay_out(work / "lib", cuda, nvml)

    async def container(self, name: str, cores: int, memory: int = LIMIT) -> Container:
        limit = Limit(GPU, Bytes(memory), cores, cores)
        directory = await self._manager.open(AllocationID(name), [limit])
        turns = self._manager.turns(AllocationID(name))
        return Container(self._libraries, directory, self._work, self._gpu.devices, turns)


def bare_container(work: Path, gpu: SimulatedGpu) -> Container:
    """Programs run there on the driver itself."""
    libraries = lay_out(work / "bare", *driver_files(gpu.cuda_version), shim=False)
    return Container(libraries, None, work, gpu.devices)

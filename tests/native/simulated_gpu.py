"""Containers behind the shim over one simulated GPU, whose own account says what was held."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from gpumanager.gpu.values import Gpu, GpuUUID, topology
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.sim.container.values import BindMount
from gpumanager.sim.gpu import SimulatedGpus, driver_files
from gpumanager.sim.libraries import lay_out
from gpumanager.sim.machine import DriverBehaviour, GpuModel, Machine
from gpumanager.units import GIB, Bytes
from tests.native.shim_container import GPU, Container
from tests.native.sim_box import PAGED
from vcuda_shim import SHIM_CUDA

PHYSICAL = Bytes(16 * GIB)


def one_gpu(
    context_bytes: int = 0, driver: DriverBehaviour = PAGED, cuda_version: int = 12050
) -> Machine:
    model = GpuModel("Simulated", 40, (7, 5), 1024, context_bytes)
    gpu = Gpu(0, 0, GPU, "00000000:10:00.0", "T4", PHYSICAL, 0)
    described = topology([gpu], [[None]])
    return Machine("one", described, {"T4": model}, cuda_version, driver)


class SimulatedNode:
    """A node with one GPU and its virtual manager's containers."""

    def __init__(
        self,
        work: Path,
        manager: VirtualManager,
        shim: Path | None = None,
        *,
        context_bytes: int = 0,
        cuda_version: int = 12050,
    ) -> None:
        self.gpus = SimulatedGpus.create(work, one_gpu(context_bytes, cuda_version=cuda_version))
        self._work, self._manager = work, manager
        cuda, nvml = driver_files(cuda_version)
        self.libraries = lay_out(work / "lib", cuda, nvml)
        if shim is not None:
            shutil.copy2(shim, self.libraries / SHIM_CUDA.name)

    async def container(self, name: str, memory: int, cores: int = 100) -> Container:
        directory = await self.open(self._manager, name, memory, cores)
        devices = self.gpus.device_directory
        nodes = (BindMount(str(path), f"/dev/{path.name}") for path in sorted(devices.iterdir()))
        turns = self._manager.turns(AllocationID(name))
        return Container(self.libraries, directory, self._work, tuple(nodes), turns)

    async def open(self, manager: VirtualManager, name: str, memory: int, cores: int = 100) -> Path:
        """Serve the allocation of a container, by this manager."""
        return await manager.open(AllocationID(name), [Limit(GPU, Bytes(memory), cores, cores)])

    def held(self) -> int:
        """Bytes on the GPU, by the GPU's own account."""
        return self.gpus.device_bytes(GPU)

    def meter(self) -> Mapping[GpuUUID, Mapping[int, Bytes | None]]:
        """What each process holds, as NVML says it."""
        return {GPU: {one.pid: Bytes(one.bytes_told) for one in self.gpus.processes()}}

    def peaks(self) -> list[int]:
        """The most that each container had at once."""
        return [tenant.devices[GPU].bytes_peak for tenant in self.gpus.tenants()]

    def close(self) -> None:
        self.gpus.close()

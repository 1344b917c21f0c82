"""Containers behind the shim over simulated GPUs, whose own account says what was held."""

import shutil
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from driver_libraries import lay_out

from gpumanager.gpu.values import Bond, Gpu, GpuUUID, Level, topology
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.sim.container.values import BindMount
from gpumanager.sim.gpu import DeviceAccount, SimulatedGpus, driver_files
from gpumanager.sim.machine import DriverBehaviour, GpuModel, Machine
from gpumanager.units import GIB, Bytes
from tests.native.shim_container import GPU, Container
from tests.native.sim_box import PAGED
from vcuda_shim import SHIM_CUDA

PHYSICAL = 16 * GIB
LIMIT = 2 * GIB


def gpu_uuid(index: int) -> GpuUUID:
    return GpuUUID(f"GPU-{uuid.UUID(int=uuid.UUID(GPU[4:]).int + index)}")


def machine_of(
    count: int = 1,
    *,
    capability: int = 7,
    memory: int = PHYSICAL,
    context_bytes: int = 0,
    memory_bandwidth: int = 0,
    cuda_version: int = 12050,
    driver: DriverBehaviour = PAGED,
) -> Machine:
    """From capability 9 on they know multicast objects."""
    gpus = [
        Gpu(n, n, gpu_uuid(n), f"00000000:{n + 1:02X}:00.0", "Simulated", Bytes(memory), None)
        for n in range(count)
    ]
    bonds = [[None if a == b else Bond(Level.BOARD) for b in range(count)] for a in range(count)]
    model = GpuModel(
        *("Simulated", 40, (capability, 0), 1024, context_bytes),
        memory_bandwidth=memory_bandwidth,
    )
    models = {"Simulated": model}
    return Machine("native", topology(gpus, bonds), models, cuda_version, driver)


def accounts(gpus: SimulatedGpus, index: int = 0) -> list[DeviceAccount]:
    """What each container has had of one GPU."""
    return [tenant.devices[gpu_uuid(index)] for tenant in gpus.tenants()]


def accounts_by_gpu(gpus: SimulatedGpus) -> list[list[DeviceAccount]]:
    """What each container has had of all GPUs."""
    return [list(tenant.devices.values()) for tenant in gpus.tenants()]


def device_nodes(gpus: SimulatedGpus, shown: Iterable[int] = (0,)) -> tuple[BindMount, ...]:
    names = ("nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in shown))
    return tuple(BindMount(str(gpus.device_directory / name), f"/dev/{name}") for name in names)


class GpuNode:
    """Containers on one machine, each with a limit for each GPU that it is granted.

    shim: instead of the one that was built.
    """

    def __init__(
        self, work: Path, manager: VirtualManager, gpus: SimulatedGpus, shim: Path | None = None
    ) -> None:
        self._work, self.manager, self.gpus = work, manager, gpus
        self.libraries = lay_out(work / "lib", *driver_files(gpus.machine.cuda_version))
        if shim is not None:
            shutil.copy2(shim, self.libraries / SHIM_CUDA.name)

    async def container(
        self,
        limits: Mapping[int, int] | int = LIMIT,
        cores: int = 100,
        *,
        name: str = "one",
        shown: Iterable[int] | None = None,
    ) -> Container:
        """limits: bytes, by GPU or of the first. shown: those with a device node, if not these."""
        by_gpu = {0: limits} if isinstance(limits, int) else limits
        granted = [Limit(gpu_uuid(gpu), Bytes(size), cores, cores) for gpu, size in by_gpu.items()]
        directory = await self.manager.open(AllocationID(name), granted)
        devices = device_nodes(self.gpus, by_gpu if shown is None else shown)
        turns = self.manager.turns(AllocationID(name))
        return Container(self.libraries, directory, self._work, devices, turns)

    def held(self) -> int:
        """Bytes on the first GPU, by its own account."""
        return self.gpus.device_bytes(GPU)

    def meter(self) -> Mapping[GpuUUID, Mapping[int, Bytes | None]]:
        """What each process holds, as NVML says it."""
        return {GPU: {one.pid: Bytes(one.bytes_told) for one in self.gpus.processes()}}

    def peaks(self) -> list[int]:
        """The most that each container had at once."""
        return [one.bytes_peak for one in accounts(self.gpus)]


def bare_container(work: Path, gpus: SimulatedGpus, shown: Iterable[int] = (0,)) -> Container:
    """Programs run there on the driver itself."""
    libraries = lay_out(work / "bare", *driver_files(gpus.machine.cuda_version), shim=False)
    return Container(libraries, None, work, device_nodes(gpus, shown))

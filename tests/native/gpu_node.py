"""Containers with several simulated GPUs behind the shim, and the simulator's own account."""

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.manager import VirtualManager
from gpumanager.limits.values import Limit
from gpumanager.sim.container.values import BindMount
from gpumanager.sim.gpu import driver_files
from gpumanager.sim.libraries import lay_out
from gpumanager.units import GIB, Bytes
from tests.native.shim_container import Container
from vcuda_shim._sim import ffi, lib

PHYSICAL = 16 * GIB
CONTROL = ("nvidiactl", "nvidia-uvm")


def identity(index: int) -> uuid.UUID:
    return uuid.UUID(int=0xB0 + index)


def gpu_uuid(index: int) -> GpuUUID:
    return GpuUUID(f"GPU-{identity(index)}")


class SimulatedMachine:
    """GPUs of 16 GiB, which know multicast objects. Their contexts take no memory."""

    def __init__(self, directory: Path, count: int, cuda_version: int = 12050) -> None:
        self.directory, self.count, self.cuda_version = directory, count, cuda_version
        directory.mkdir()
        machine: Any = ffi.new("struct sim_machine *")
        machine.gpu_count, machine.cuda_version = count, cuda_version
        machine.driver_version = b"555.58.02"
        machine.driver.page_bytes, machine.driver.slab_most_bytes = 2 << 20, 1 << 20
        for index in range(count):
            gpu = machine.gpus[index]
            gpu.name, gpu.uuid, gpu.memory_bytes = b"Simulated", identity(index).bytes, PHYSICAL
            gpu.sm_count, gpu.threads_per_sm, gpu.capability_major = 40, 1024, 9
            gpu.minor, gpu.pci_bus = index, index + 1
        state = directory / CONTROL[0]
        assert lib.sim_create(str(state).encode(), machine) == 0
        for name in ("nvidia-uvm", *(f"nvidia{index}" for index in range(count))):
            (directory / name).touch()
        opened: Any = ffi.new("struct sim_state **")
        assert lib.sim_open(str(state).encode(), opened) == 0
        self._state = opened[0]

    def close(self) -> None:
        lib.sim_close(self._state)

    def devices(self, gpus: Sequence[int]) -> tuple[BindMount, ...]:
        names = (*CONTROL, *(f"nvidia{index}" for index in gpus))
        return tuple(BindMount(str(self.directory / name), f"/dev/{name}") for name in names)

    def tenants(self) -> list[list[Any]]:
        """For each container in the order of their arrival, its accounts by GPU."""
        out: Any = ffi.new("struct sim_tenant[]", lib.SIM_TENANTS)
        count = lib.account_tenants(self._state, out, lib.SIM_TENANTS)
        found = sorted((out[n] for n in range(count)), key=lambda tenant: tenant.serial)
        return [[kept(tenant.gpus[index]) for index in range(self.count)] for tenant in found]


def kept(usage: Any) -> Any:
    """A copy: what it lies in is gone with its array."""
    return ffi.new("struct sim_usage *", usage)


class Node:
    """Containers on one machine, each with a limit for each GPU that it is granted."""

    def __init__(self, work: Path, machine: SimulatedMachine, manager: VirtualManager) -> None:
        cuda, nvml = driver_files(machine.cuda_version)
        self._libraries = lay_out(work / "lib", cuda, nvml)
        self._work, self.machine, self.manager = work, machine, manager

    async def container(
        self,
        limits: Mapping[int, int],
        *,
        name: str = "one",
        shown: Sequence[int] | None = None,
        cores: int = 100,
    ) -> Container:
        """limits: bytes by GPU. shown: those with a device node, if not the granted ones."""
        granted = [Limit(gpu_uuid(gpu), Bytes(size), cores, cores) for gpu, size in limits.items()]
        directory = await self.manager.open(AllocationID(name), granted)
        devices = self.machine.devices([*limits] if shown is None else shown)
        turns = self.manager.turns(AllocationID(name))
        return Container(self._libraries, directory, self._work, devices, turns)

"""One simulated GPU whose contexts take memory, and a manager that measures."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from driver_libraries import lay_out

from gpumanager.errors import GpuManagerError
from gpumanager.gpu.values import GpuUUID
from gpumanager.ids import AllocationID
from gpumanager.limits.turns import Turns
from gpumanager.limits.values import Limit
from gpumanager.sim.gpu import DeviceAccount, SimulatedGpus, driver_files
from gpumanager.sim.machine import DriverBehaviour
from gpumanager.units import GIB, MIB, Bytes
from tests.limits.metered_manager import MeteredManager as VirtualManager
from tests.native.gpu_node import device_nodes
from tests.native.programs.shim_client import soon
from tests.native.shim_container import Container, Program
from tests.native.sim_box import PAGED, machine

CONTEXT = 304 * MIB
LIMIT = 2 * GIB
NAME = AllocationID("one")

CLIENT = """
from tests.native.programs.overhead_client import *
"""


async def eventually(true: Callable[[], bool]) -> bool:
    """Within a second, counted in looks: see shim_client.soon."""
    return await asyncio.to_thread(soon, true)


class Meter:
    """NVML's view of the simulated GPUs, which can be made to fail."""

    def __init__(self, gpus: SimulatedGpus) -> None:
        self._gpus = gpus
        self.fails = False
        self.shift = 0
        """By how much its pids differ from ours, as in another pid namespace."""
        self.passes = 0

    def __call__(self, gpus: object = None, /) -> Mapping[GpuUUID, Mapping[int, Bytes | None]]:
        del gpus  # all are told
        self.passes += 1
        if self.fails:
            raise GpuManagerError("no NVML")
        held: dict[GpuUUID, dict[int, Bytes | None]] = {
            gpu.uuid: {} for gpu in self._gpus.machine.topology.gpus
        }
        for process in self._gpus.processes():
            held[process.gpu][process.pid + self.shift] = Bytes(process.bytes_told)
        return held


class MeasuredNode:
    """One simulated GPU whose contexts take memory, a manager that measures, one container."""

    def __init__(
        self, work: Path, driver: DriverBehaviour = PAGED, cuda_version: int = 12050
    ) -> None:
        described = machine(1, context_bytes=CONTEXT, driver=driver, cuda_version=cuda_version)
        gpus = SimulatedGpus.create(work / "host", described)
        self.work, self.gpus = work, gpus
        self.gpu = gpus.machine.topology.gpus[0].uuid
        self.meter = Meter(gpus)
        self.manager = self.new_manager()
        cuda, nvml = driver_files(cuda_version)
        self._libraries = lay_out(work / "lib", cuda, nvml)

    async def stop(self) -> None:
        await self.manager.stop()
        self.gpus.close()

    def new_manager(self) -> VirtualManager:
        return VirtualManager(self.work / "vm", meter=self.meter, turns=Turns(self.work / "turns"))

    async def container(
        self, memory: int = LIMIT, gpu: GpuUUID | None = None, cores: int = 100
    ) -> Container:
        limit = Limit(gpu or self.gpu, Bytes(memory), cores, cores)
        directory = await self.manager.open(NAME, [limit])
        return Container(self._libraries, directory, self.work, device_nodes(self.gpus))

    async def run(self, script: str, memory: int = LIMIT) -> dict[str, Any]:
        return await (await self.container(memory)).run(CLIENT + script)

    async def begin(self, script: str) -> Program:
        return (await self.container()).begin(CLIENT + script)

    def account(self) -> DeviceAccount:
        """Of the container that came last."""
        return self.gpus.tenants()[-1].devices[self.gpu]

    def held(self) -> int:
        return self.manager.usage(NAME).devices[0].held


Start = Callable[[DriverBehaviour], MeasuredNode]


@asynccontextmanager
async def measured_each(work: Path, seconds: float) -> AsyncIterator[Start]:
    """Begins a node on such a driver, whose manager measures every so many seconds."""
    nodes: list[MeasuredNode] = []
    looking: list[asyncio.Task[None]] = []

    def begin(driver: DriverBehaviour) -> MeasuredNode:
        nodes.append(MeasuredNode(work, driver))
        looking.append(asyncio.create_task(nodes[0].manager.measure_every(seconds)))
        return nodes[0]

    yield begin
    for task in looking:
        task.cancel()
    for node in nodes:
        await node.stop()

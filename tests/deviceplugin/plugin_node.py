"""A kubelet's registration service and an allocator, for tests of the device plugin."""

import asyncio
from pathlib import Path

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.allocator import Allocator
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.deviceplugin.dependencies import Dependencies
from gpumanager.deviceplugin.identity.device_checkpoint import DeviceCheckpoint
from gpumanager.gpu.values import Gpu, GpuUUID, topology
from gpumanager.grants.journal_file import JournalFile
from gpumanager.grants.node import Node
from gpumanager.grants.store import GrantStore
from gpumanager.grpc_wire import is_served, sockets_like
from gpumanager.isolation.edits import DeviceFiles
from gpumanager.isolation.table import Isolations
from gpumanager.sim.in_memory import SimulatedLimits
from gpumanager.units import GIB, Bytes
from tests.deviceplugin.admission.admission_node import VOLUMES

BOUND = 120.0
"""Seconds after which a test is stuck; a busy machine may need many."""

GPU = Gpu(
    index=0,
    minor=3,
    uuid=GpuUUID("GPU-1f3a9c02-0000-0000-0000-000000000000"),
    bus_id="0000:01:00.0",
    model="Tesla T4",
    memory=Bytes(4 * GIB),
    numa_node=1,
)


class Kubelet:
    """The registration service of a kubelet ≥ 1.36: it dials back before Register returns."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "kubelet.sock"
        self.requests: asyncio.Queue[pb.RegisterRequest] = asyncio.Queue()
        self.server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Deletes every socket first, as the real one does."""
        for path in self.directory.glob("*.sock"):
            path.unlink()
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers((wire.registration_handler(self.register),))
        self.server.add_insecure_port(f"unix:{self.socket}")
        await self.server.start()

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0)
            self.server = None

    async def register(self, request: pb.RegisterRequest, context: wire.Context) -> pb.Empty:
        async with self.dial(request.endpoint) as channel:
            options = await wire.DevicePluginClient(channel).options(BOUND)
        if options != request.options:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "options differ")
        await self.requests.put(request)
        return pb.Empty()

    async def registered(self) -> dict[str, str]:
        """The next two registrations: resource and endpoint."""
        async with asyncio.timeout(BOUND):
            requests = [await self.requests.get() for _ in range(2)]
        return {request.resource_name: request.endpoint for request in requests}

    def dial(self, endpoint: str) -> grpc.aio.Channel:
        """endpoint: a name as registered, or the one that those of all instances begin with."""
        served = [one for one in sockets_like(self.directory / endpoint) if is_served(one)]
        return wire.dial(served[0])


class RefusingKubelet(Kubelet):
    """Does not take `refused`."""

    def __init__(self, directory: Path, refused: set[str]) -> None:
        super().__init__(directory)
        self.refused = refused
        self.endpoints: list[str] = []
        """Of every attempt."""

    async def register(self, request: pb.RegisterRequest, context: wire.Context) -> pb.Empty:
        self.endpoints.append(request.endpoint)
        if request.resource_name in self.refused:
            await context.abort(grpc.StatusCode.UNKNOWN, f"{request.resource_name} is invalid")
        return await super().register(request, context)


def new_allocator(directory: Path, gpu: Gpu = GPU) -> Allocator:
    isolation = Isolations(
        SimulatedLimits(),
        VOLUMES,
        DeviceFiles(),
    )
    journal = JournalFile(directory / "journal" / "allocations.json")
    return Allocator(
        Node(topology([gpu], [[None]]), GrantStore(journal, isolation)),
        Dependencies(
            isolation=isolation,
            books=DeviceCheckpoint(directory / "kubelet_internal_checkpoint"),
        ),
    )

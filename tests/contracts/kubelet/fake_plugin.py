"""A device plugin for tests of kubelets: answers plainly and remembers every call."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb

OPTIONS = pb.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)


class FakePlugin:
    """Serves one resource. refuse: the text of an error, by the name of the call.

    nodes: NUMA nodes of each device. watchers: how many streams of devices there are.
    at_once: how many calls of an admission were ever under way together.
    """

    def __init__(self, directory: Path, resource: str, ids: Sequence[str]) -> None:
        self.resource = resource
        self.ids = list(ids)
        self.unhealthy: set[str] = set()
        self.nodes: tuple[int, ...] = ()
        self.watchers = 0
        self.at_once = 0
        self._under_way = 0
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.must_include: list[tuple[str, ...]] = []
        self.refuse: dict[str, str] = {}
        self.refuse_times = 1 << 30
        self.prefer: Callable[[list[str], int], list[str]] = lambda free, size: free[:size]
        self.during_allocate: Callable[[], Any] | None = None
        self._directory = directory
        self.endpoint = f"{resource.rpartition('-')[2]}.sock"
        self._changed = asyncio.Event()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        (self._directory / self.endpoint).unlink(missing_ok=True)
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((wire.device_plugin_handler(self),))
        self._server.add_insecure_port(f"unix:{self._directory / self.endpoint}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def register(self, version: str = wire.VERSION) -> None:
        request = pb.RegisterRequest(
            version=version,
            endpoint=self.endpoint,
            resource_name=self.resource,
            options=OPTIONS,
        )
        async with wire.dial(self._directory / "kubelet.sock") as channel:
            await wire.register(channel, request, 60)

    def change(self, unhealthy: set[str]) -> None:
        self.unhealthy = unhealthy
        self._changed.set()

    async def options(self, request: pb.Empty, context: Any) -> pb.DevicePluginOptions:
        self.calls.append(("options", ()))
        return OPTIONS

    async def list_and_watch(
        self, request: pb.Empty, context: Any
    ) -> AsyncIterator[pb.ListAndWatchResponse]:
        self.watchers += 1
        try:
            while True:
                self._changed.clear()
                yield pb.ListAndWatchResponse(devices=map(self._device, self.ids))
                await self._changed.wait()
        finally:
            self.watchers -= 1

    def _device(self, name: str) -> pb.Device:
        health = "Unhealthy" if name in self.unhealthy else "Healthy"
        nodes = [pb.NUMANode(ID=node) for node in self.nodes]
        topology = pb.TopologyInfo(nodes=nodes) if nodes else None
        return pb.Device(ID=name, health=health, topology=topology)

    async def preferred(
        self, request: pb.PreferredAllocationRequest, context: Any
    ) -> pb.PreferredAllocationResponse:
        (wanted,) = request.container_requests
        available = list(wanted.available_deviceIDs)
        self.calls.append(("preferred", tuple(available)))
        self.must_include.append(tuple(wanted.must_include_deviceIDs))
        with self._counted():
            await self._maybe_refuse("preferred", context)
        answer = self.prefer(available, wanted.allocation_size)
        row = pb.ContainerPreferredAllocationResponse(deviceIDs=answer)
        return pb.PreferredAllocationResponse(container_responses=[row])

    async def allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:
        (wanted,) = request.container_requests
        self.calls.append(("allocate", tuple(wanted.devices_ids)))
        with self._counted():
            await self._maybe_refuse("allocate", context)
            if self.during_allocate is not None:
                await self.during_allocate()
        row = pb.ContainerAllocateResponse(
            envs={"RESOURCE": self.resource, self.endpoint: "1"},
            mounts=[pb.Mount(container_path="/etc/vcuda", host_path="/x", read_only=True)],
        )
        return pb.AllocateResponse(container_responses=[row])

    async def pre_start(
        self, request: pb.PreStartContainerRequest, context: Any
    ) -> pb.PreStartContainerResponse:
        self.calls.append(("pre_start", tuple(request.devices_ids)))
        await self._maybe_refuse("pre_start", context)
        return pb.PreStartContainerResponse()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._under_way += 1
        self.at_once = max(self.at_once, self._under_way)
        try:
            yield
        finally:
            self._under_way -= 1

    def called(self, name: str) -> list[tuple[str, ...]]:
        return [ids for call, ids in self.calls if call == name]

    async def _maybe_refuse(self, call: str, context: Any) -> None:
        if call in self.refuse and self.refuse_times > 0:
            self.refuse_times -= 1
            await context.abort(grpc.StatusCode.UNKNOWN, self.refuse[call])

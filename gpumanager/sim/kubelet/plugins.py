"""The kubelet's side of the device plugin API: who registered, and one endpoint per resource.

As kubelet 1.36: it dials back and asks for the options before Register returns.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.sim.kubelet.devices import NONE, IDs

DIAL_SECONDS: Final = 10.0
PLUGIN_SECONDS: Final = 60.0
"""The real kubelet waits for ever in GetPreferredAllocation and Allocate; a simulation ends."""

PRE_START_SECONDS: Final = 30.0
HEALTHY: Final = "Healthy"

OnDevices = Callable[[str, IDs, IDs], None]
"""Called with a resource, all its devices and the healthy ones of them."""


class PluginFailed(Exception):
    """A call that the plugin refused or did not answer; the text is the plugin's own."""


class PluginEndpoint:
    """One registered plugin."""

    def __init__(self, resource: str, socket: Path, on_devices: OnDevices) -> None:
        self.resource = resource
        self.options = pb.DevicePluginOptions()
        self._channel = wire.dial(socket)
        self._client = wire.DevicePluginClient(self._channel)
        self._on_devices = on_devices
        self._watch: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Ask for the options; raises PluginFailed."""
        self.options = await _answer(self._client.options(DIAL_SECONDS))

    def listen(self) -> None:
        """From now on hear which devices there are."""
        self._watch = asyncio.create_task(self._listen())

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        await self._channel.close(None)

    async def preferred(self, available: IDs, must_include: IDs, size: int) -> Sequence[str]:
        """The plugin's wish; none where it has no opinion."""
        if not self.options.get_preferred_allocation_available:
            return ()
        request = pb.PreferredAllocationRequest(
            container_requests=[
                pb.ContainerPreferredAllocationRequest(
                    available_deviceIDs=sorted(available),
                    must_include_deviceIDs=sorted(must_include),
                    allocation_size=size,
                )
            ]
        )
        answer = await _answer(self._client.preferred(request, PLUGIN_SECONDS))
        responses = answer.container_responses
        return tuple(responses[0].deviceIDs) if responses else ()

    async def allocate(self, ids: IDs) -> pb.ContainerAllocateResponse:
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=sorted(ids))]
        )
        answer = await _answer(self._client.allocate(request, PLUGIN_SECONDS))
        if not answer.container_responses:
            raise PluginFailed("no containers return in allocation response")
        response: pb.ContainerAllocateResponse = answer.container_responses[0]
        return response

    async def pre_start(self, ids: IDs) -> None:
        if self.options.pre_start_required:
            request = pb.PreStartContainerRequest(devices_ids=sorted(ids))
            await _answer(self._client.pre_start(request, PRE_START_SECONDS))

    async def _listen(self) -> None:
        """Follow ListAndWatch; a stream that ends leaves no healthy device."""
        known = NONE
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in self._client.list_and_watch():
                known = frozenset(device.ID for device in response.devices)
                healthy = (row.ID for row in response.devices if row.health == HEALTHY)
                self._on_devices(self.resource, known, frozenset(healthy))
        self._on_devices(self.resource, known, NONE)


class Plugins:
    """All endpoints, and the Registration service that makes them."""

    def __init__(self, directory: Path, on_devices: OnDevices) -> None:
        self._directory = directory
        self._on_devices = on_devices
        self._endpoints: dict[str, PluginEndpoint] = {}

    def get(self, resource: str) -> PluginEndpoint | None:
        return self._endpoints.get(resource)

    async def register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:
        """The Registration service."""
        if request.version != wire.VERSION:
            await context.abort(
                grpc.StatusCode.UNKNOWN,
                f"requested API version {request.version!r} is not supported by kubelet. "
                f"Supported version is {wire.VERSION!r}",
            )
        socket = self._directory / request.endpoint
        endpoint = PluginEndpoint(request.resource_name, socket, self._on_devices)
        try:
            await endpoint.connect()
        except PluginFailed as error:
            await endpoint.close()
            await context.abort(
                grpc.StatusCode.UNKNOWN, f"failed to dial device plugin with socketPath: {error}"
            )
        await self._replace(endpoint)
        return pb.Empty()

    async def close(self) -> None:
        endpoints, self._endpoints = tuple(self._endpoints.values()), {}
        for endpoint in endpoints:
            await endpoint.close()

    async def _replace(self, endpoint: PluginEndpoint) -> None:
        old = self._endpoints.get(endpoint.resource)
        self._endpoints[endpoint.resource] = endpoint
        if old is not None:
            await old.close()
        endpoint.listen()


async def _answer(call: Any) -> Any:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise PluginFailed(error.details() or error.code().name) from error

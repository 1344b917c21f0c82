"""The kubelet's side of the device plugin API: registrations, and one endpoint per resource.

When the stream of devices of a resource's only plugin ends, none of its devices is healthy and no
call gets through any more. What else ends with a stream, see `versions.EndpointKey`.
"""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.sim.kubelet.devices import IDs
from gpumanager.sim.kubelet.versions import EndpointKey, KubeletVersion

DIAL_SECONDS: Final = 10.0
PLUGIN_SECONDS: Final = 60.0
"""The real kubelet waits for ever in GetPreferredAllocation and Allocate; a simulation ends."""

PRE_START_SECONDS: Final = 30.0
EXTENDED: Final = re.compile(r"(?![^/]*kubernetes\.io/)[-.a-z0-9]+/[-._A-Za-z0-9]+")
"""Names of extended resources: with somebody's domain, and not Kubernetes' own."""

T = TypeVar("T")
OnDevices = Callable[[str, Iterable[pb.Device] | None], None]
"""A resource and what its plugin reports; None: it has ended."""


class PluginFailed(Exception):
    """A call that the plugin refused or did not answer; the text is the plugin's own."""


class PluginEndpoint:
    """One registered plugin. options: as registered; those of the plugin itself once it is asked.

    unnoticed: the end of its stream will never be noticed.
    """

    def __init__(self, resource: str, socket: Path, options: pb.DevicePluginOptions) -> None:
        self.resource = resource
        self.socket = socket
        self.options = options
        self.unnoticed = False
        self.following: asyncio.Task[None] | None = None
        self._channel = wire.dial(socket)
        self._client = wire.DevicePluginClient(self._channel)

    async def connect(self, *, ask: bool) -> None:
        """Dial, and ask for the options where the kubelet does; raises PluginFailed."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._channel.channel_ready()
        except TimeoutError:
            cause = "failed to dial device plugin: context deadline exceeded"
            raise PluginFailed(cause) from None
        if ask:
            self.options = await _answer(self._client.options(DIAL_SECONDS))

    async def follow(self, on_devices: OnDevices) -> None:
        """Follow ListAndWatch to its end."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in self._client.list_and_watch():
                on_devices(self.resource, response.devices)

    async def close(self) -> None:
        if self.following is not None:
            await cancel([self.following])
        await self._channel.close(None)

    async def preferred(self, available: IDs, must_include: IDs, size: int) -> Sequence[str]:
        """Return the plugin's wish; none where it has no opinion."""
        if not self.options.get_preferred_allocation_available:
            return ()
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=sorted(available),
            must_include_deviceIDs=sorted(must_include),
            allocation_size=size,
        )
        request = pb.PreferredAllocationRequest(container_requests=[asked])
        answer = await _answer(self._client.preferred(request, PLUGIN_SECONDS))
        responses = answer.container_responses
        return tuple(responses[0].deviceIDs) if responses else ()

    async def allocate(self, ids: IDs) -> pb.ContainerAllocateResponse:
        asked = pb.ContainerAllocateRequest(devices_ids=sorted(ids))
        request = pb.AllocateRequest(container_requests=[asked])
        answer = await _answer(self._client.allocate(request, PLUGIN_SECONDS))
        if not answer.container_responses:
            raise PluginFailed("no containers return in allocation response")
        response: pb.ContainerAllocateResponse = answer.container_responses[0]
        return response

    async def pre_start(self, ids: IDs) -> None:
        if self.options.pre_start_required:
            request = pb.PreStartContainerRequest(devices_ids=sorted(ids))
            await _answer(self._client.pre_start(request, PRE_START_SECONDS))


class Plugins:
    """All endpoints, and the Registration service that makes them."""

    def __init__(self, directory: Path, version: KubeletVersion, on_devices: OnDevices) -> None:
        self._directory = directory
        self._version = version
        self._on_devices = on_devices
        self._connected: list[PluginEndpoint] = []
        """All whose end has not been noticed, in the order of their registration."""
        self._made: list[PluginEndpoint] = []
        """All, to be closed with the kubelet."""
        self._dialling: list[asyncio.Task[None]] = []

    def get(self, resource: str) -> PluginEndpoint | None:
        """Return the one that is called: the newest."""
        return next((one for one in reversed(self._connected) if one.resource == resource), None)

    async def register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:
        """Add a plugin, or refuse it in the kubelet's words."""
        refused = ""
        if request.version != wire.VERSION:
            refused = (
                f"requested API version {request.version!r} is not supported by kubelet. "
                f"Supported version is {wire.VERSION!r}"
            )
        elif not EXTENDED.fullmatch(request.resource_name):
            refused = f"the ResourceName {request.resource_name!r} is invalid"
        elif self._version.dials_back:
            try:
                await self._add(request)
            except PluginFailed as error:
                refused = str(error)
        else:
            self._dialling.append(asyncio.create_task(self._add(request)))
        if refused:
            await context.abort(grpc.StatusCode.UNKNOWN, refused)
        return pb.Empty()

    async def close(self) -> None:
        await cancel(self._dialling)
        made, self._made = self._made, []
        self._connected, self._dialling = [], []
        for endpoint in made:
            await endpoint.close()

    async def _add(self, request: pb.RegisterRequest) -> None:
        """Raises PluginFailed."""
        socket = self._directory / request.endpoint
        endpoint = PluginEndpoint(request.resource_name, socket, request.options)
        self._made.append(endpoint)
        await endpoint.connect(ask=self._version.dials_back)
        for first in self._connected:
            same = (first.resource, first.socket) == (endpoint.resource, socket)
            if same and self._version.endpoint_key is EndpointKey.PATH:
                # As 1.37.2 cleans up after the refusal it forgets the first one's connection, too:
                # its end is not noticed any more, its devices stay healthy, and its path is refused
                # for ever. Example: a plugin that registers again on the socket that the kubelet is
                # still connected to.
                first.unnoticed = True
                raise PluginFailed(f"device plugin already connected: {socket}")
        self._connected.append(endpoint)
        endpoint.following = asyncio.create_task(self._follow(endpoint))

    async def _follow(self, endpoint: PluginEndpoint) -> None:
        """Follow a plugin's devices, and the end of their stream."""
        await endpoint.follow(self._on_devices)
        if endpoint.unnoticed or endpoint not in self._connected:
            return
        resource = endpoint.resource
        newest = self.get(resource)
        self._connected.remove(endpoint)
        other = self.get(resource)
        match self._version.endpoint_key:
            case EndpointKey.PATH if other:
                return
            case EndpointKey.RESOURCE if other and other.following:
                self._connected.remove(other)
                other.following.cancel()
            case EndpointKey.NEWEST if newest is not endpoint:
                return
        self._on_devices(resource, None)


async def _answer(call: Awaitable[T]) -> T:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise PluginFailed(error.details() or error.code().name) from error


async def cancel(tasks: Iterable["asyncio.Task[None]"]) -> None:
    """Cancel tasks, and wait for their end."""
    tasks = tuple(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""The kubelet's side of the device plugin API: registrations, and one endpoint per resource.

When the stream of devices of a resource's only plugin ends, none of its devices is healthy and no
call gets through any more. What else ends with a stream, see `versions.EndpointKey`.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager.deviceplugin import wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.sim.kubelet.devices import NONE, IDs, Nodes
from gpumanager.sim.kubelet.versions import EndpointKey, KubeletVersion

DIAL_SECONDS: Final = 10.0
PLUGIN_SECONDS: Final = 60.0
"""The real kubelet waits for ever in GetPreferredAllocation and Allocate; a simulation ends."""

PRE_START_SECONDS: Final = 30.0
HEALTHY: Final = "Healthy"
CANNOT_DIAL: Final = "failed to dial device plugin:"
CONNECTED: Final = "device plugin already connected:"
EXTENDED: Final = re.compile(r"(?![^/]*kubernetes\.io/)[-.a-z0-9]+/[-._A-Za-z0-9]+")
"""Names of extended resources: with somebody's domain, and not Kubernetes' own."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What a plugin reports of its resource. nodes: NUMA nodes of those that name some."""

    resource: str
    known: IDs = NONE
    healthy: IDs = NONE
    nodes: Nodes = field(default_factory=dict)


OnDevices = Callable[[Devices], None]


class PluginFailed(Exception):
    """A call that the plugin refused or did not answer; the text is the plugin's own."""


class PluginEndpoint:
    """One registered plugin. options: as registered; those of the plugin itself once it is asked.

    on_end: called when its stream of devices has ended.
    """

    def __init__(
        self,
        resource: str,
        socket: Path,
        options: pb.DevicePluginOptions,
        on_devices: OnDevices,
        on_end: "Callable[[PluginEndpoint], None]",
    ) -> None:
        self.resource = resource
        self.socket = socket
        self.options = options
        self._channel = wire.dial(socket)
        self._client = wire.DevicePluginClient(self._channel)
        self._on_devices = on_devices
        self._on_end = on_end
        self._watch: asyncio.Task[None] | None = None
        self._hanging_up: asyncio.Task[None] | None = None
        self._stopped = False

    async def connect(self, *, ask: bool) -> None:
        """Dial, and ask for the options where the kubelet does; raises PluginFailed."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._channel.channel_ready()
        except TimeoutError:
            raise PluginFailed(f"{CANNOT_DIAL} context deadline exceeded") from None
        if ask:
            self.options = await _answer(self._client.options(DIAL_SECONDS))

    def listen(self) -> None:
        """Start ListAndWatch."""
        self._watch = asyncio.create_task(self._listen())

    def drop(self) -> None:
        """Let no call reach it any more."""
        self._stopped = True

    def hang_up(self) -> None:
        """Drop it, and end its stream."""
        self.drop()
        self._hanging_up = asyncio.create_task(self.close())

    async def close(self) -> None:
        self.drop()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        await self._channel.close(None)

    async def preferred(self, available: IDs, must_include: IDs, size: int) -> Sequence[str]:
        """Return the plugin's wish; none where it has no opinion."""
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
        answer = await self._ask(self._client.preferred(request, PLUGIN_SECONDS))
        responses = answer.container_responses
        return tuple(responses[0].deviceIDs) if responses else ()

    async def allocate(self, ids: IDs) -> pb.ContainerAllocateResponse:
        request = pb.AllocateRequest(
            container_requests=[pb.ContainerAllocateRequest(devices_ids=sorted(ids))]
        )
        answer = await self._ask(self._client.allocate(request, PLUGIN_SECONDS))
        if not answer.container_responses:
            raise PluginFailed("no containers return in allocation response")
        response: pb.ContainerAllocateResponse = answer.container_responses[0]
        return response

    async def pre_start(self, ids: IDs) -> None:
        if self.options.pre_start_required:
            request = pb.PreStartContainerRequest(devices_ids=sorted(ids))
            await self._ask(self._client.pre_start(request, PRE_START_SECONDS))

    async def _ask(self, call: Coroutine[Any, Any, Any]) -> Any:
        if self._stopped:
            call.close()
            raise PluginFailed(f"endpoint {self.resource} has been stopped")
        return await _answer(call)

    async def _listen(self) -> None:
        """Follow ListAndWatch to its end."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            async for response in self._client.list_and_watch():
                rows = response.devices
                nodes = {row.ID: tuple(node.ID for node in row.topology.nodes) for row in rows}
                self._on_devices(
                    Devices(
                        self.resource,
                        frozenset(row.ID for row in rows),
                        frozenset(row.ID for row in rows if row.health == HEALTHY),
                        {name: found for name, found in nodes.items() if found},
                    )
                )
        self._on_end(self)


class Plugins:
    """All endpoints, and the Registration service that makes them."""

    def __init__(self, directory: Path, version: KubeletVersion, on_devices: OnDevices) -> None:
        self._directory = directory
        self._version = version
        self._on_devices = on_devices
        self._known: dict[str, Devices] = {}
        self._endpoints: dict[str, PluginEndpoint] = {}
        """By resource, those that are called."""
        self._connected: list[PluginEndpoint] = []
        """All whose end has not been noticed, in the order of their registration."""
        self._unnoticed: set[PluginEndpoint] = set()
        """Of the connected, those whose end will never be noticed."""
        self._made: list[PluginEndpoint] = []
        """All, to be closed with the kubelet."""
        self._dialling: set[asyncio.Task[None]] = set()

    def get(self, resource: str) -> PluginEndpoint | None:
        return self._endpoints.get(resource)

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
        if refused:
            await context.abort(grpc.StatusCode.UNKNOWN, refused)
        adding = asyncio.create_task(self._add(request))
        self._dialling.add(adding)
        adding.add_done_callback(self._dialling.discard)
        if self._version.dials_back:
            try:
                await adding
            except PluginFailed as error:
                await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return pb.Empty()

    async def close(self) -> None:
        for dialling in tuple(self._dialling):
            dialling.cancel()
        made, self._made = self._made, []
        self._connected, self._endpoints, self._unnoticed = [], {}, set()
        for endpoint in made:
            await endpoint.close()

    async def _add(self, request: pb.RegisterRequest) -> None:
        socket = self._directory / request.endpoint
        endpoint = PluginEndpoint(
            request.resource_name, socket, request.options, self._advertise, self._ended
        )
        try:
            await endpoint.connect(ask=self._version.dials_back)
            self._refuse_connected(endpoint)
        except PluginFailed:
            await endpoint.close()
            if self._version.dials_back:
                raise
            return
        self._made.append(endpoint)
        self._connected.append(endpoint)
        self._endpoints[endpoint.resource] = endpoint
        endpoint.listen()

    def _refuse_connected(self, endpoint: PluginEndpoint) -> None:
        """Refuse a second endpoint of a path, where that is the key; raises PluginFailed.

        As 1.37.2 cleans up after the refusal it forgets the first one's connection, too: its end is
        not noticed any more, its devices stay healthy, and its path is refused for ever. Example: a
        plugin that registers again on the socket that the kubelet is still connected to.
        """
        same = {(one.resource, one.socket): one for one in self._connected}
        first = same.get((endpoint.resource, endpoint.socket))
        if first is not None and self._version.endpoint_key is EndpointKey.PATH:
            self._unnoticed.add(first)
            raise PluginFailed(f"{CONNECTED} {endpoint.socket}")

    def _ended(self, endpoint: PluginEndpoint) -> None:
        """Follow the end of the stream of `endpoint`."""
        if endpoint in self._unnoticed or endpoint not in self._connected:
            return
        endpoint.drop()
        self._connected.remove(endpoint)
        current = self._endpoints[endpoint.resource]
        others = [one for one in self._connected if one.resource == endpoint.resource]
        match self._version.endpoint_key:
            case EndpointKey.PATH if others:
                self._endpoints[endpoint.resource] = others[0]
                return
            case EndpointKey.RESOURCE if current in self._connected:
                self._connected.remove(current)
                current.hang_up()
            case EndpointKey.NEWEST if current is not endpoint:
                return
        known = self._known.get(endpoint.resource, Devices(endpoint.resource))
        self._advertise(replace(known, healthy=NONE))

    def _advertise(self, devices: Devices) -> None:
        self._known[devices.resource] = devices
        self._on_devices(devices)


async def _answer(call: Any) -> Any:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise PluginFailed(error.details() or error.code().name) from error

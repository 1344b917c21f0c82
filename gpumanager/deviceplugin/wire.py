"""The device plugin API on the wire, both sides: what a plugin serves and what a kubelet serves.

The agent is the plugin; the simulated kubelet is the other side. A message has at most 4 MiB, the
kubelet's limit.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb
from gpumanager.grpc_wire import KUBELET_LIMIT as MESSAGE_LIMIT
from gpumanager.grpc_wire import Context, Method, Request, Response, dial

__all__ = ["MESSAGE_LIMIT", "Context", "Method", "dial"]

VERSION: Final = "v1beta1"
REGISTRATION: Final = "v1beta1.Registration"
DEVICE_PLUGIN: Final = "v1beta1.DevicePlugin"

OPTIONS: Final = Method("GetDevicePluginOptions", pb.Empty, pb.DevicePluginOptions)
LIST_AND_WATCH: Final = Method("ListAndWatch", pb.Empty, pb.ListAndWatchResponse, streams=True)
PREFERRED_ALLOCATION: Final = Method(
    "GetPreferredAllocation", pb.PreferredAllocationRequest, pb.PreferredAllocationResponse
)
ALLOCATE: Final = Method("Allocate", pb.AllocateRequest, pb.AllocateResponse)
PRE_START_CONTAINER: Final = Method(
    "PreStartContainer", pb.PreStartContainerRequest, pb.PreStartContainerResponse
)
REGISTER: Final = Method("Register", pb.RegisterRequest, pb.Empty)


def device_plugin_handler(servicer: Any) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return what serves `servicer`, such as a ResourceServer, as v1beta1.DevicePlugin."""
    return grpc_wire.handler(
        DEVICE_PLUGIN,
        {
            OPTIONS: servicer.options,
            LIST_AND_WATCH: servicer.list_and_watch,
            PREFERRED_ALLOCATION: servicer.preferred,
            ALLOCATE: servicer.allocate,
            PRE_START_CONTAINER: servicer.pre_start,
        },
    )


def registration_handler(
    register: Callable[[pb.RegisterRequest, Context], Awaitable[pb.Empty]],
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return what serves `register` as v1beta1.Registration in the kubelet's gRPC server."""
    return grpc_wire.handler(REGISTRATION, {REGISTER: register})


class DevicePluginClient:
    """Calls a device plugin, as the kubelet does. deadline: seconds for a call, None for none."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def options(self, deadline: float | None = None) -> pb.DevicePluginOptions:
        return await self._call(OPTIONS, pb.Empty(), deadline)

    def list_and_watch(self) -> AsyncIterator[pb.ListAndWatchResponse]:
        """Yield devices at each change; close the channel to end it. Raises AioRpcError."""
        return aiter(grpc_wire.stream(self._channel, DEVICE_PLUGIN, LIST_AND_WATCH, pb.Empty()))

    async def preferred(
        self, request: pb.PreferredAllocationRequest, deadline: float | None = None
    ) -> pb.PreferredAllocationResponse:
        return await self._call(PREFERRED_ALLOCATION, request, deadline)

    async def allocate(
        self, request: pb.AllocateRequest, deadline: float | None = None
    ) -> pb.AllocateResponse:
        return await self._call(ALLOCATE, request, deadline)

    async def pre_start(
        self, request: pb.PreStartContainerRequest, deadline: float | None = None
    ) -> pb.PreStartContainerResponse:
        return await self._call(PRE_START_CONTAINER, request, deadline)

    async def _call(
        self, method: Method[Request, Response], request: Request, deadline: float | None
    ) -> Response:
        return await grpc_wire.call(self._channel, DEVICE_PLUGIN, method, request, deadline)


async def register(
    channel: grpc.aio.Channel, request: pb.RegisterRequest, deadline: float | None = None
) -> None:
    """Register a plugin with the kubelet. Raises grpc.aio.AioRpcError."""
    await grpc_wire.call(channel, REGISTRATION, REGISTER, request, deadline)

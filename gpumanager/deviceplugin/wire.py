"""The device plugin API on the wire, both sides: what a plugin serves and what a kubelet serves.

One table per service says which method takes and gives which message; handlers and clients are
made from it, without generated stubs. The agent uses one side, the simulated kubelet the other.
Connections are unix sockets with the kubelet's own 4 MiB limit on a message.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from gpumanager.deviceplugin.api import deviceplugin_v1beta1_pb2 as pb

VERSION: Final = "v1beta1"
MESSAGE_LIMIT: Final = 4 << 20
"""Bytes; what a kubelet accepts in one message (gRPC's default, which it never raises)."""

REGISTRATION: Final = "v1beta1.Registration"
DEVICE_PLUGIN: Final = "v1beta1.DevicePlugin"

_Request = TypeVar("_Request", bound=Message)
_Response = TypeVar("_Response", bound=Message)
Context = Any
"""`grpc.aio.ServicerContext` of whatever messages."""


class Method(NamedTuple, Generic[_Request, _Response]):
    """One row of a service: its names on the wire, and its messages."""

    service: str
    name: str
    request: type[_Request]
    response: type[_Response]
    streams: bool = False

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"


OPTIONS: Final = Method(DEVICE_PLUGIN, "GetDevicePluginOptions", pb.Empty, pb.DevicePluginOptions)
LIST_AND_WATCH: Final = Method(
    DEVICE_PLUGIN, "ListAndWatch", pb.Empty, pb.ListAndWatchResponse, streams=True
)
PREFERRED: Final = Method(
    DEVICE_PLUGIN,
    "GetPreferredAllocation",
    pb.PreferredAllocationRequest,
    pb.PreferredAllocationResponse,
)
ALLOCATE: Final = Method(DEVICE_PLUGIN, "Allocate", pb.AllocateRequest, pb.AllocateResponse)
PRE_START: Final = Method(
    DEVICE_PLUGIN, "PreStartContainer", pb.PreStartContainerRequest, pb.PreStartContainerResponse
)
REGISTER: Final = Method(REGISTRATION, "Register", pb.RegisterRequest, pb.Empty)


class DevicePluginServicer(Protocol):
    """What a device plugin answers; each takes the request and the call's context."""

    async def options(self, request: pb.Empty, context: Context) -> pb.DevicePluginOptions: ...

    def list_and_watch(
        self, request: pb.Empty, context: Context
    ) -> AsyncIterator[pb.ListAndWatchResponse]: ...

    async def preferred(
        self, request: pb.PreferredAllocationRequest, context: Context
    ) -> pb.PreferredAllocationResponse: ...

    async def allocate(
        self, request: pb.AllocateRequest, context: Context
    ) -> pb.AllocateResponse: ...

    async def pre_start(
        self, request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse: ...


Register = Callable[[pb.RegisterRequest, Context], Awaitable[pb.Empty]]


def device_plugin_handler(servicer: DevicePluginServicer) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serves `servicer` as v1beta1.DevicePlugin."""
    return _handler(
        {
            OPTIONS: servicer.options,
            LIST_AND_WATCH: servicer.list_and_watch,
            PREFERRED: servicer.preferred,
            ALLOCATE: servicer.allocate,
            PRE_START: servicer.pre_start,
        },
    )


def registration_handler(register: Register) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serves `register` as v1beta1.Registration: the kubelet's side."""
    return _handler({REGISTER: register})


def _handler(methods: Mapping[Method[Any, Any], Any]) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serves each method by its coroutine function or, where it streams, async generator."""
    service = next(iter(methods)).service
    return grpc.method_handlers_generic_handler(
        service, {method.name: _rpc(method, serve) for method, serve in methods.items()}
    )


def _rpc(method: Method[Any, Any], serve: Any) -> Any:
    make = (
        grpc.unary_stream_rpc_method_handler
        if method.streams
        else grpc.unary_unary_rpc_method_handler
    )
    return make(serve, method.request.FromString, method.response.SerializeToString)


class DevicePluginClient:
    """The kubelet's side of v1beta1.DevicePlugin. deadline: seconds, None for none."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def options(self, deadline: float | None = None) -> pb.DevicePluginOptions:
        return await _unary(self._channel, OPTIONS, pb.Empty(), deadline)

    def list_and_watch(self) -> AsyncIterator[pb.ListAndWatchResponse]:
        """Ends by an error when the plugin goes away; leave it by closing the channel."""
        call: Any = self._channel.unary_stream(
            LIST_AND_WATCH.path,
            LIST_AND_WATCH.request.SerializeToString,
            LIST_AND_WATCH.response.FromString,
        )
        stream: AsyncIterator[pb.ListAndWatchResponse] = aiter(call(pb.Empty()))
        return stream

    async def preferred(
        self, request: pb.PreferredAllocationRequest, deadline: float | None = None
    ) -> pb.PreferredAllocationResponse:
        return await _unary(self._channel, PREFERRED, request, deadline)

    async def allocate(
        self, request: pb.AllocateRequest, deadline: float | None = None
    ) -> pb.AllocateResponse:
        return await _unary(self._channel, ALLOCATE, request, deadline)

    async def pre_start(
        self, request: pb.PreStartContainerRequest, deadline: float | None = None
    ) -> pb.PreStartContainerResponse:
        return await _unary(self._channel, PRE_START, request, deadline)


async def register(
    channel: grpc.aio.Channel, request: pb.RegisterRequest, deadline: float | None = None
) -> None:
    """The plugin's side of v1beta1.Registration. Raises grpc.aio.AioRpcError."""
    await _unary(channel, REGISTER, request, deadline)


async def _unary(
    channel: grpc.aio.Channel,
    method: Method[_Request, _Response],
    request: _Request,
    deadline: float | None,
) -> _Response:
    call: Any = channel.unary_unary(
        method.path, method.request.SerializeToString, method.response.FromString
    )
    answer: _Response = await call(request, timeout=deadline)
    return answer


def dial(socket: Path, limit: int = MESSAGE_LIMIT) -> grpc.aio.Channel:
    """A channel to a unix socket that never goes through a proxy; use it as `async with`."""
    return grpc.aio.insecure_channel(
        f"unix:{socket}",
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )

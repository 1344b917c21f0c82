"""CRI on the wire, both sides: Version, ListContainers and ContainerStatus of the RuntimeService.

The agent is its client; the simulated container runtime serves it. v1 and v1alpha2 are the same
bytes under two names.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import grpc
import grpc.aio

from gpumanager.runtime.api import runtime_v1_pb2 as pb

V1: Final = "runtime.v1.RuntimeService"
V1ALPHA2: Final = "runtime.v1alpha2.RuntimeService"
SERVICES: Final = (V1, V1ALPHA2)
MESSAGE_LIMIT: Final = 16 << 20
"""Bytes we accept, as the kubelet does of its runtime."""

RECONNECT_MS: Final = 1000
"""Longest time for which a runtime that has come back is not noticed; gRPC's own is 2 minutes."""

Context = Any
"""`grpc.aio.ServicerContext` of whatever messages."""

_M = TypeVar("_M")


class RuntimeServicer(Protocol):
    """What a container runtime answers."""

    async def version(self, request: pb.VersionRequest, context: Context) -> pb.VersionResponse: ...

    async def list_containers(
        self, request: pb.ListContainersRequest, context: Context
    ) -> pb.ListContainersResponse: ...

    async def container_status(
        self, request: pb.ContainerStatusRequest, context: Context
    ) -> pb.ContainerStatusResponse: ...


def runtime_handler(
    servicer: RuntimeServicer, service: str = V1
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serves `servicer` under the name of one of the versions."""
    calls: dict[str, tuple[Any, Any]] = {
        "Version": (servicer.version, pb.VersionRequest),
        "ListContainers": (servicer.list_containers, pb.ListContainersRequest),
        "ContainerStatus": (servicer.container_status, pb.ContainerStatusRequest),
    }
    return grpc.method_handlers_generic_handler(
        service,
        {
            name: grpc.unary_unary_rpc_method_handler(answer, request.FromString, _bytes)
            for name, (answer, request) in calls.items()
        },
    )


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


class RuntimeClient:
    """The agent's side, of one version. Raises grpc.aio.AioRpcError."""

    def __init__(self, channel: grpc.aio.Channel, service: str, timeout: float) -> None:
        self.service = service
        self._channel = channel
        self._timeout = timeout

    async def version(self) -> pb.VersionResponse:
        request = pb.VersionRequest(version="0.1.0")  # of the kubelet's own API, as it sends it
        return await self._call("Version", request, pb.VersionResponse.FromString)

    async def list_containers(self, filter_: pb.ContainerFilter) -> pb.ListContainersResponse:
        request = pb.ListContainersRequest(filter=filter_)
        return await self._call("ListContainers", request, pb.ListContainersResponse.FromString)

    async def container_status(self, container_id: str) -> pb.ContainerStatusResponse:
        """With what the runtime tells beyond CRI."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        return await self._call("ContainerStatus", request, pb.ContainerStatusResponse.FromString)

    async def _call(self, method: str, request: Any, parse: Callable[[bytes], _M]) -> _M:
        call: Any = self._channel.unary_unary(f"/{self.service}/{method}", _bytes, parse)
        answer: _M = await call(request, timeout=self._timeout)
        return answer


def dial(socket: Path) -> grpc.aio.Channel:
    """A channel to a container runtime's socket; close it."""
    return grpc.aio.insecure_channel(
        f"unix:{socket}",
        options=[
            ("grpc.max_receive_message_length", MESSAGE_LIMIT),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
        ],
    )

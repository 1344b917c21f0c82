"""CRI on the wire, both sides: Version, ListContainers, ContainerStatus and Status of the
RuntimeService.

The agent is the client; the simulated container runtime is the server. v1 and v1alpha2 differ in
the name of the service only.
"""

from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.grpc_wire import Context, Method
from gpumanager.runtime.api import runtime_v1_pb2 as pb

V1: Final = "runtime.v1.RuntimeService"
V1ALPHA2: Final = "runtime.v1alpha2.RuntimeService"
SERVICES: Final = (V1, V1ALPHA2)
MESSAGE_LIMIT: Final = 16 << 20
"""Bytes in one message; the kubelet accepts as many from its runtime."""

RECONNECT_MS: Final = 1000
"""Longest pause between two attempts to reconnect; gRPC's default is 2 minutes."""

VERSION: Final = Method("Version", pb.VersionRequest, pb.VersionResponse)
LIST_CONTAINERS: Final = Method(
    "ListContainers", pb.ListContainersRequest, pb.ListContainersResponse
)
CONTAINER_STATUS: Final = Method(
    "ContainerStatus", pb.ContainerStatusRequest, pb.ContainerStatusResponse
)
STATUS: Final = Method("Status", pb.StatusRequest, pb.StatusResponse)


class RuntimeServicer(Protocol):
    """The methods that a container runtime serves."""

    async def version(self, request: pb.VersionRequest, context: Context) -> pb.VersionResponse: ...

    async def list_containers(
        self, request: pb.ListContainersRequest, context: Context
    ) -> pb.ListContainersResponse: ...

    async def container_status(
        self, request: pb.ContainerStatusRequest, context: Context
    ) -> pb.ContainerStatusResponse: ...

    async def status(self, request: pb.StatusRequest, context: Context) -> pb.StatusResponse: ...


def runtime_handler(
    servicer: RuntimeServicer, service: str = V1
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return what serves `servicer` in a gRPC server. service: one of SERVICES."""
    methods: dict[Method[Any, Any], Any] = {
        VERSION: servicer.version,
        LIST_CONTAINERS: servicer.list_containers,
        CONTAINER_STATUS: servicer.container_status,
        STATUS: servicer.status,
    }
    return grpc_wire.handler(service, methods)


class RuntimeClient:
    """Calls one of SERVICES. timeout: seconds for a call. Raises grpc.aio.AioRpcError."""

    def __init__(self, channel: grpc.aio.Channel, service: str, timeout: float) -> None:
        self.service = service
        self._channel = channel
        self._timeout = timeout

    async def version(self) -> pb.VersionResponse:
        request = pb.VersionRequest(version="0.1.0")  # which the kubelet sends, too
        return await grpc_wire.call(self._channel, self.service, VERSION, request, self._timeout)

    async def status(self) -> pb.StatusResponse:
        """Return the runtime's status, with its configuration if it reports that."""
        request = pb.StatusRequest(verbose=True)
        return await grpc_wire.call(self._channel, self.service, STATUS, request, self._timeout)

    async def list_containers(self, filter_: pb.ContainerFilter) -> pb.ListContainersResponse:
        request = pb.ListContainersRequest(filter=filter_)
        return await grpc_wire.call(
            self._channel, self.service, LIST_CONTAINERS, request, self._timeout
        )

    async def container_status(self, container_id: str) -> pb.ContainerStatusResponse:
        """Return a container's status, with what the runtime reports beyond CRI."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        return await grpc_wire.call(
            self._channel, self.service, CONTAINER_STATUS, request, self._timeout
        )


def dial(socket: Path) -> grpc.aio.Channel:
    """Open a channel to a container runtime's socket; the caller closes it."""
    return grpc_wire.dial(socket, MESSAGE_LIMIT, max_reconnect_backoff_ms=RECONNECT_MS)

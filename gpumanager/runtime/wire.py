"""CRI on the wire, both sides: Version, ListContainers, ContainerStatus and Status of the
RuntimeService.

The agent is the client; the simulated container runtime is the server. v1 and v1alpha2 differ in
the name of the service only.
"""

from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.grpc_wire import Method
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


def runtime_handler(servicer: Any, service: str = V1) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return what serves these methods of a container runtime. service: one of SERVICES."""
    methods: dict[Method[Any, Any], Any] = {
        VERSION: servicer.version,
        LIST_CONTAINERS: servicer.list_containers,
        CONTAINER_STATUS: servicer.container_status,
        STATUS: servicer.status,
    }
    return grpc_wire.handler(service, methods)


def dial(socket: Path) -> grpc.aio.Channel:
    """Open a channel to a container runtime's socket; the caller closes it."""
    return grpc_wire.dial(socket, MESSAGE_LIMIT, max_reconnect_backoff_ms=RECONNECT_MS)

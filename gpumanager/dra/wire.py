"""The kubelet's DRA APIs on the wire, both sides: registration, DRAPlugin and health.

The agent serves them, the simulated kubelet calls them. DRAPlugin v1beta1 lacks one field of v1;
the health API v1alpha1 differs from v1 only by name. So each service is one set of messages under
two names. A plugin advertises the name without its package (`v1.DRAPlugin`); the gRPC service name
has the package (k8s.io/kubelet/pkg/apis/dra/v1/types.go).
"""

from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.dra.api import dra_v1_pb2 as pb
from gpumanager.dra.api import drahealth_v1_pb2 as health_pb
from gpumanager.dra.api import pluginregistration_v1_pb2 as registration_pb
from gpumanager.grpc_wire import Context, Method, dial

__all__ = ["Context", "dial"]

PLUGIN_TYPE: Final = "DRAPlugin"
"""What PluginInfo.type says of a DRA driver."""

REGISTRATION: Final = "pluginregistration.Registration"
PLUGIN_SERVICES: Final = {
    "v1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    "v1beta1.DRAPlugin": "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
}
HEALTH_SERVICES: Final = {
    "v1.DRAResourceHealth": "v1.DRAResourceHealth",
    "v1alpha1.DRAResourceHealth": "v1alpha1.DRAResourceHealth",
}
"""The gRPC service of each advertised name, newest first: a kubelet takes the first it knows."""

GET_INFO: Final = Method("GetInfo", registration_pb.InfoRequest, registration_pb.PluginInfo)
NOTIFY: Final = Method(
    "NotifyRegistrationStatus",
    registration_pb.RegistrationStatus,
    registration_pb.RegistrationStatusResponse,
)
PREPARE: Final = Method(
    "NodePrepareResources", pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse
)
UNPREPARE: Final = Method(
    "NodeUnprepareResources", pb.NodeUnprepareResourcesRequest, pb.NodeUnprepareResourcesResponse
)
WATCH: Final = Method(
    "NodeWatchResources",
    health_pb.NodeWatchResourcesRequest,
    health_pb.NodeWatchResourcesResponse,
    streams=True,
)


def registration_handler(servicer: Any) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return what serves `servicer` as pluginregistration.Registration in a gRPC server."""
    return grpc_wire.handler(REGISTRATION, {GET_INFO: servicer.get_info, NOTIFY: servicer.notify})


def plugin_handlers(servicer: Any, health: Any) -> "tuple[grpc.GenericRpcHandler[Any, Any], ...]":
    """Serve `servicer` as DRAPlugin of both versions, and `health` as DRAResourceHealth."""
    plugin: dict[Method[Any, Any], Any] = {
        PREPARE: servicer.prepare,
        UNPREPARE: servicer.unprepare,
    }
    return (
        *(grpc_wire.handler(service, plugin) for service in PLUGIN_SERVICES.values()),
        *(grpc_wire.handler(name, {WATCH: health.watch}) for name in HEALTH_SERVICES.values()),
    )


class DRAPluginClient:
    """The kubelet's side of registration, DRAPlugin and DRAResourceHealth.

    version, health: as advertised, for example `v1.DRAPlugin` and `v1.DRAResourceHealth`. deadline:
    seconds, None for none.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        version: str = "v1.DRAPlugin",
        health: str = "v1.DRAResourceHealth",
    ) -> None:
        self._channel = channel
        self._service = PLUGIN_SERVICES[version]
        self._health = HEALTH_SERVICES[health]

    async def get_info(self, deadline: float | None = None) -> registration_pb.PluginInfo:
        request = registration_pb.InfoRequest()
        return await grpc_wire.call(self._channel, REGISTRATION, GET_INFO, request, deadline)

    async def notify(
        self, request: registration_pb.RegistrationStatus, deadline: float | None = None
    ) -> None:
        await grpc_wire.call(self._channel, REGISTRATION, NOTIFY, request, deadline)

    async def prepare(
        self, request: pb.NodePrepareResourcesRequest, deadline: float | None = None
    ) -> pb.NodePrepareResourcesResponse:
        return await grpc_wire.call(self._channel, self._service, PREPARE, request, deadline)

    async def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, deadline: float | None = None
    ) -> pb.NodeUnprepareResourcesResponse:
        return await grpc_wire.call(self._channel, self._service, UNPREPARE, request, deadline)

    def watch(self) -> AsyncIterator[health_pb.NodeWatchResourcesResponse]:
        """Yield all health at each change; close the channel to end it. Raises AioRpcError."""
        request = health_pb.NodeWatchResourcesRequest()
        return aiter(grpc_wire.stream(self._channel, self._health, WATCH, request))

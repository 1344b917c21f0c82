"""The PodResources API on the wire, both sides: List and Get of v1.PodResourcesLister.

The agent is its client; the simulated kubelet serves it.
"""

from pathlib import Path
from typing import Any, Final, Protocol

import grpc
import grpc.aio

from gpumanager.kubelet.api import podresources_v1_pb2 as pb

SERVICE: Final = "v1.PodResourcesLister"
MESSAGE_LIMIT: Final = 16 << 20
"""Bytes we accept; a kubelet with many pods and devices exceeds gRPC's 4 MiB."""

Context = Any
"""`grpc.aio.ServicerContext` of whatever messages."""


class PodResourcesServicer(Protocol):
    """What a kubelet answers."""

    async def list(
        self, request: pb.ListPodResourcesRequest, context: Context
    ) -> pb.ListPodResourcesResponse: ...

    async def get(
        self, request: pb.GetPodResourcesRequest, context: Context
    ) -> pb.GetPodResourcesResponse: ...


def pod_resources_handler(servicer: PodResourcesServicer) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serves `servicer` as v1.PodResourcesLister."""
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "List": grpc.unary_unary_rpc_method_handler(
                servicer.list,
                pb.ListPodResourcesRequest.FromString,
                pb.ListPodResourcesResponse.SerializeToString,
            ),
            "Get": grpc.unary_unary_rpc_method_handler(
                servicer.get,
                pb.GetPodResourcesRequest.FromString,
                pb.GetPodResourcesResponse.SerializeToString,
            ),
        },
    )


class PodResourcesClient:
    """The agent's side. Raises grpc.aio.AioRpcError."""

    def __init__(self, channel: grpc.aio.Channel, timeout: float) -> None:
        self._channel = channel
        self._timeout = timeout

    async def list(self) -> pb.ListPodResourcesResponse:
        call: Any = self._channel.unary_unary(
            f"/{SERVICE}/List",
            pb.ListPodResourcesRequest.SerializeToString,
            pb.ListPodResourcesResponse.FromString,
        )
        answer: pb.ListPodResourcesResponse = await call(
            pb.ListPodResourcesRequest(), timeout=self._timeout
        )
        return answer

    async def get(self, namespace: str, name: str) -> pb.GetPodResourcesResponse:
        call: Any = self._channel.unary_unary(
            f"/{SERVICE}/Get",
            pb.GetPodResourcesRequest.SerializeToString,
            pb.GetPodResourcesResponse.FromString,
        )
        request = pb.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        answer: pb.GetPodResourcesResponse = await call(request, timeout=self._timeout)
        return answer


def dial(socket: Path) -> grpc.aio.Channel:
    """A channel to the kubelet's PodResources socket; use it as `async with`."""
    return grpc.aio.insecure_channel(
        f"unix:{socket}",
        options=[
            ("grpc.max_receive_message_length", MESSAGE_LIMIT),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )

"""The kubelet's gRPC services on the wire, both sides: PodResources and, from 1.37 on, Pods.

The agent is their client; the simulated kubelet serves them. What PodResources v1alpha1 says are
v1's messages with fewer fields, under the same numbers, so v1's classes stand for both.
"""

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.grpc_wire import Context, Method
from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.kubelet.api import pods_v1alpha1_pb2 as pods_pb

__all__ = ["Context", "Method"]

PODS: Final = "v1alpha1.Pods"
SERVICE: Final = "v1.PodResourcesLister"
ALPHA: Final = "v1alpha1.PodResourcesLister"
MESSAGE_LIMIT: Final = 16 << 20
"""Bytes in one answer; a kubelet with many pods and devices exceeds gRPC's 4 MiB."""

LIST: Final = Method("List", pb.ListPodResourcesRequest, pb.ListPodResourcesResponse)
GET: Final = Method("Get", pb.GetPodResourcesRequest, pb.GetPodResourcesResponse)
ALLOCATABLE: Final = Method(
    "GetAllocatableResources", pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse
)
METHODS: Final = (LIST, GET, ALLOCATABLE)
LIST_PODS: Final = Method("ListPods", pods_pb.ListPodsRequest, pods_pb.ListPodsResponse)


def pod_resources_handler(
    servicer: Any, methods: Collection[Method[Any, Any]] = METHODS
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return what serves `methods` as v1.PodResourcesLister; older kubelets have fewer."""
    every = {LIST: servicer.list, GET: servicer.get, ALLOCATABLE: servicer.allocatable}
    return grpc_wire.handler(SERVICE, {method: every[method] for method in methods})


def alpha_handler(
    list_: Callable[[pb.ListPodResourcesRequest, Context], Awaitable[pb.ListPodResourcesResponse]],
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return what serves `list_` as v1alpha1.PodResourcesLister, which has nothing else."""
    return grpc_wire.handler(ALPHA, {LIST: list_})


def pods_handler(
    list_: Callable[[pods_pb.ListPodsRequest, Context], Awaitable[pods_pb.ListPodsResponse]],
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Return what serves `list_` as v1alpha1.Pods, of which the agent calls nothing else."""
    return grpc_wire.handler(PODS, {LIST_PODS: list_})


class PodResourcesClient:
    """Calls a kubelet. Raises grpc.aio.AioRpcError. timeout: seconds for one call."""

    def __init__(self, channel: grpc.aio.Channel, timeout: float) -> None:
        self._channel = channel
        self._timeout = timeout

    async def list(self, service: str = SERVICE) -> pb.ListPodResourcesResponse:
        """service: v1's, or v1alpha1's."""
        request = pb.ListPodResourcesRequest()
        return await grpc_wire.call(self._channel, service, LIST, request, self._timeout)

    async def get(self, namespace: str, name: str) -> pb.GetPodResourcesResponse:
        request = pb.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        return await grpc_wire.call(self._channel, SERVICE, GET, request, self._timeout)

    async def allocatable(self) -> pb.AllocatableResourcesResponse:
        request = pb.AllocatableResourcesRequest()
        return await grpc_wire.call(self._channel, SERVICE, ALLOCATABLE, request, self._timeout)


def dial(socket: Path, limit: int = MESSAGE_LIMIT) -> grpc.aio.Channel:
    """Open a channel to a socket of the kubelet, for `async with`. limit: bytes of an answer."""
    return grpc_wire.dial(socket, limit)

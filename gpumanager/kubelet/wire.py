"""The kubelet's gRPC services on the wire, both sides: PodResources and, from 1.37 on, Pods.

The agent is their client; the simulated kubelet serves them. What PodResources v1alpha1 says are
v1's messages with fewer fields, under the same numbers, so v1's classes stand for both.
"""

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from gpumanager.kubelet.api import podresources_v1_pb2 as pb
from gpumanager.kubelet.api import pods_v1alpha1_pb2 as pods_pb

PODS: Final = "v1alpha1.Pods"
SERVICE: Final = "v1.PodResourcesLister"
ALPHA: Final = "v1alpha1.PodResourcesLister"
MESSAGE_LIMIT: Final = 16 << 20
"""Bytes we accept; a kubelet with many pods and devices exceeds gRPC's 4 MiB."""

Context = Any
"""`grpc.aio.ServicerContext` of whatever messages."""

_Response = TypeVar("_Response", bound=Message)


class Method(NamedTuple):
    """One row of the service: its name, and its messages."""

    name: str
    request: type[Message]
    response: type[Message]


LIST: Final = Method("List", pb.ListPodResourcesRequest, pb.ListPodResourcesResponse)
GET: Final = Method("Get", pb.GetPodResourcesRequest, pb.GetPodResourcesResponse)
ALLOCATABLE: Final = Method(
    "GetAllocatableResources", pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse
)
METHODS: Final = (LIST, GET, ALLOCATABLE)
LIST_PODS: Final = Method("ListPods", pods_pb.ListPodsRequest, pods_pb.ListPodsResponse)


class PodResourcesServicer(Protocol):
    """What a kubelet answers."""

    async def list(
        self, request: pb.ListPodResourcesRequest, context: Context
    ) -> pb.ListPodResourcesResponse: ...

    async def get(
        self, request: pb.GetPodResourcesRequest, context: Context
    ) -> pb.GetPodResourcesResponse: ...

    async def allocatable(
        self, request: pb.AllocatableResourcesRequest, context: Context
    ) -> pb.AllocatableResourcesResponse: ...


def pod_resources_handler(
    servicer: PodResourcesServicer, methods: Collection[Method] = METHODS
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serves `methods` of `servicer` as v1.PodResourcesLister; older kubelets have fewer."""
    every = {LIST: servicer.list, GET: servicer.get, ALLOCATABLE: servicer.allocatable}
    served = {method.name: _rpc(method, every[method]) for method in methods}
    return grpc.method_handlers_generic_handler(SERVICE, served)


def alpha_handler(
    list_: Callable[[pb.ListPodResourcesRequest, Context], Awaitable[pb.ListPodResourcesResponse]],
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serves `list_` as v1alpha1.PodResourcesLister, which has nothing else."""
    return grpc.method_handlers_generic_handler(ALPHA, {LIST.name: _rpc(LIST, list_)})


def pods_handler(
    list_: Callable[[pods_pb.ListPodsRequest, Context], Awaitable[pods_pb.ListPodsResponse]],
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serves `list_` as v1alpha1.Pods, of which the agent asks nothing else."""
    served = {LIST_PODS.name: _rpc(LIST_PODS, list_)}
    return grpc.method_handlers_generic_handler(PODS, served)


def _rpc(method: Method, serve: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        serve, method.request.FromString, method.response.SerializeToString
    )


class PodResourcesClient:
    """The agent's side. Raises grpc.aio.AioRpcError. timeout: seconds for one call."""

    def __init__(self, channel: grpc.aio.Channel, timeout: float) -> None:
        self._channel = channel
        self._timeout = timeout

    async def list(self, service: str = SERVICE) -> pb.ListPodResourcesResponse:
        """service: v1's, or v1alpha1's."""
        answer = await self._call(service, LIST, pb.ListPodResourcesRequest())
        return _typed(answer, pb.ListPodResourcesResponse)

    async def get(self, namespace: str, name: str) -> pb.GetPodResourcesResponse:
        request = pb.GetPodResourcesRequest(pod_namespace=namespace, pod_name=name)
        return _typed(await self._call(SERVICE, GET, request), pb.GetPodResourcesResponse)

    async def allocatable(self) -> pb.AllocatableResourcesResponse:
        answer = await self._call(SERVICE, ALLOCATABLE, pb.AllocatableResourcesRequest())
        return _typed(answer, pb.AllocatableResourcesResponse)

    async def _call(self, service: str, method: Method, request: Message) -> Message:
        return await call(self._channel, service, method, request, self._timeout)


async def call(
    channel: grpc.aio.Channel, service: str, method: Method, request: Message, deadline: float
) -> Message:
    """One call. Raises grpc.aio.AioRpcError. deadline: seconds."""
    ask: Any = channel.unary_unary(
        f"/{service}/{method.name}",
        method.request.SerializeToString,
        method.response.FromString,
    )
    answer: Message = await ask(request, timeout=deadline)
    return answer


def _typed(answer: Message, kind: type[_Response]) -> _Response:
    if not isinstance(answer, kind):  # pragma: no cover  # the table gives it
        raise TypeError(type(answer).__name__)
    return answer


def dial(socket: Path, limit: int = MESSAGE_LIMIT) -> grpc.aio.Channel:
    """A channel to a socket of the kubelet; use it as `async with`. limit: bytes of an answer."""
    return grpc.aio.insecure_channel(
        f"unix:{socket}",
        options=[
            ("grpc.max_receive_message_length", limit),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )

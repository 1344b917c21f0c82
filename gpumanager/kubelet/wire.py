"""The PodResources API on the wire, both sides: v1 and, of older kubelets, v1alpha1.

The agent is its client; the simulated kubelet serves it. What v1alpha1 says are v1's messages with
fewer fields, under the same numbers, so v1's classes stand for both.
"""

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from gpumanager.kubelet.api import podresources_v1_pb2 as pb

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
        call: Any = self._channel.unary_unary(
            f"/{service}/{method.name}",
            method.request.SerializeToString,
            method.response.FromString,
        )
        answer: Message = await call(request, timeout=self._timeout)
        return answer


def _typed(answer: Message, kind: type[_Response]) -> _Response:
    if not isinstance(answer, kind):  # pragma: no cover  # the table gives it
        raise TypeError(type(answer).__name__)
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

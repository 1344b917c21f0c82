"""gRPC without generated stubs: a service is a table of methods, read by its clients and servers.

Generated stubs refuse to run with an older grpcio than the one that made them (decision 0142).
"""

import errno
import socket
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

KUBELET_LIMIT: Final = 4 << 20
"""Bytes; what a kubelet accepts in one message (gRPC's default, which it never raises)."""

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)

Context = Any
"""`grpc.aio.ServicerContext` of whatever messages."""


class Method(NamedTuple, Generic[Request, Response]):
    """One row of a service: its name on the wire, and its messages."""

    name: str
    request: type[Request]
    response: type[Response]
    streams: bool = False


def handler(
    service: str, methods: Mapping[Method[Any, Any], Any]
) -> "grpc.GenericRpcHandler[Any, Any]":
    """Serve each method by its coroutine function or, where it streams, async generator."""
    handlers: dict[str, Any] = {}
    for method, serve in methods.items():
        make: Any = grpc.unary_unary_rpc_method_handler
        if method.streams:
            make = grpc.unary_stream_rpc_method_handler
        handlers[method.name] = make(
            serve, method.request.FromString, method.response.SerializeToString
        )
    return grpc.method_handlers_generic_handler(service, handlers)


async def call(
    channel: grpc.aio.Channel,
    service: str,
    method: Method[Request, Response],
    request: Request,
    timeout: float | None,  # noqa: ASYNC109 - gRPC's, which the server is told
) -> Response:
    """Call a method. timeout: seconds, None for none. Raises grpc.aio.AioRpcError."""
    rpc: Any = channel.unary_unary(
        f"/{service}/{method.name}", method.request.SerializeToString, method.response.FromString
    )
    answer: Response = await rpc(request, timeout=timeout)
    return answer


def stream(
    channel: grpc.aio.Channel,
    service: str,
    method: Method[Request, Response],
    request: Request,
) -> "grpc.aio.UnaryStreamCall[Request, Response]":
    """Call a method for answers as they come; leave it by closing the channel."""
    rpc: Any = channel.unary_stream(
        f"/{service}/{method.name}", method.request.SerializeToString, method.response.FromString
    )
    answers: grpc.aio.UnaryStreamCall[Request, Response] = rpc(request)
    return answers


def dial(socket: Path, limit: int = KUBELET_LIMIT, **options: int) -> grpc.aio.Channel:
    """Return a channel to a unix socket that never goes through a proxy; use it as `async with`.

    limit: bytes of a message. options: of gRPC, without their `grpc.`.
    """
    own = {
        "max_receive_message_length": limit,
        "enable_http_proxy": 0,
        "use_local_subchannel_pool": 1,
        **options,
    }
    return grpc.aio.insecure_channel(
        f"unix:{socket}", options=[(f"grpc.{name}", value) for name, value in own.items()]
    )


def sockets_like(name: Path) -> list[Path]:
    """Return the sockets of every instance: `name` as of older agents, and `name-<instance>`."""
    return [one for one in name.parent.glob(f"{name.stem}*{name.suffix}") if one.is_socket()]


def is_served(path: Path) -> bool:
    """Return whether a server listens there, as far as can be found without waiting."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as caller:
        return caller.connect_ex(str(path)) not in {errno.ECONNREFUSED, errno.ENOENT}


@dataclass(frozen=True, slots=True)
class PluginStanding:
    """How one resource, or driver, stands with the kubelet. served: its socket listens.

    failure: what kept it from that, or what the kubelet answered.
    """

    resource: str
    served: bool
    registered: bool
    failure: str | None


Answer = TypeVar("Answer")


class CallTimer(Protocol):
    """Measures how long the kubelet waits for an answer: `monitor.metrics.latency`."""

    async def timed(self, call: str, resource: str, answer: Awaitable[Answer]) -> Answer:
        """Return the answer, and raise what it raises."""


class NoTimer:
    """Measures nothing."""

    async def timed(self, _call: str, _resource: str, answer: Awaitable[Answer]) -> Answer:
        return await answer

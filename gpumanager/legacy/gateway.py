"""The way from a container's socket to the gRPC server behind it, for callers that speak HTTP/2.

gRPC takes no connection that another has accepted, so that bytes are carried to a socket of its
own. The caller is not among them: each connection to that socket has a peer name that the kernel
chooses and gRPC reports, and the caller is registered under that name here. Nothing
of this exists until the first such caller comes, and no caller stays for long.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.grpc_wire import Method
from gpumanager.legacy.api import vcuda_pb2 as pb
from gpumanager.legacy.files import VDevice
from gpumanager.limits.socket.bounds import RepeatedLog
from gpumanager.limits.socket.protocol import HelloRefused

log = logging.getLogger(__name__)

SOCKET: Final = ".register.sock"
CALL_SECONDS: Final = 10.0
"""How long one caller may stay. A registration takes milliseconds."""

CHUNK: Final = 1 << 14
"""Bytes on their way in one direction: no more are taken before these are delivered."""


SERVICE: Final = "vcuda.VCUDAService"
METHOD: Final = Method("RegisterVDevice", pb.VDeviceRequest, pb.VDeviceResponse)
MESSAGE_LIMIT: Final = 1 << 16

STATUSES: Final[Mapping[int, grpc.StatusCode]] = {
    errno.EACCES: grpc.StatusCode.PERMISSION_DENIED,
    errno.EINVAL: grpc.StatusCode.INVALID_ARGUMENT,
    errno.ENOSPC: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errno.ESRCH: grpc.StatusCode.FAILED_PRECONDITION,
}
"""How refusals are called in gRPC; UNAVAILABLE for what may pass."""

Register = Callable[[VDevice], Awaitable[HelloRefused | None]]
"""Does what one caller asks for; the caller is known."""


class Gateway:
    """Serves `vcuda.VCUDAService/RegisterVDevice` for all allocations of a manager, as gpu-client
    calls it. directory: for its socket, closed to containers."""

    def __init__(self, directory: Path, call_seconds: float) -> None:
        self._path = directory / SOCKET
        self._call_seconds = call_seconds
        self._starting = asyncio.Lock()
        self._server: grpc.aio.Server | None = None
        self._callers: dict[str, Register] = {}
        """By the abstract names of their sockets."""
        self._said = RepeatedLog(log, "RegisterVDevice")

    async def carry(self, connection: socket.socket, begun: bytes, register: Register) -> None:
        """Carry all that a caller sends, and the answers. begun: what was read of it already."""
        self._said.summarize()
        with connection.dup() as caller:
            caller.setblocking(False)
            try:
                async with asyncio.timeout(self._call_seconds):
                    async with self._starting:
                        await self._start()
                    await self._carry(caller, begun, register)
            except TimeoutError:
                words = f"a caller stayed for {self._call_seconds:g} s"
                self._said.say(logging.INFO, "stayed", words)
            except OSError as error:
                self._said.say(logging.WARNING, error.errno, error.strerror or str(error))

    async def _start(self) -> None:
        if self._server is not None:
            return
        self._path.unlink(missing_ok=True)
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", MESSAGE_LIMIT)])
        server.add_generic_rpc_handlers((grpc_wire.handler(SERVICE, {METHOD: self._register}),))
        try:
            server.add_insecure_port(f"unix:{self._path}")
        except RuntimeError as error:
            raise OSError(None, f"gRPC cannot listen: {error}", str(self._path)) from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace=None)
            self._path.unlink(missing_ok=True)

    async def _register(self, request: pb.VDeviceRequest, context: Any) -> pb.VDeviceResponse:
        kind, _, name = context.peer().partition(":")
        register = self._callers.get(name) if kind == "unix-abstract" else None
        if register is None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "call /etc/vcuda/vcuda.sock")
            raise AssertionError("abort returned")  # pragma: no cover  # it always raises
        refused = await register(
            VDevice(request.pod_uid, request.container_name, request.container_id)
        )
        if refused is not None:
            status = STATUSES.get(refused.number, grpc.StatusCode.UNAVAILABLE)
            await context.abort(status, refused.reason)
        return pb.VDeviceResponse()

    async def _carry(self, caller: socket.socket, begun: bytes, register: Register) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as inner:
            inner.bind("")  # an abstract name that nobody else has
            name = inner.getsockname().lstrip(b"\0").decode()
            self._callers[name] = register
            try:
                await loop.sock_connect(inner, str(self._path))
                await loop.sock_sendall(inner, begun)
                ways = _copy(caller, inner), _copy(inner, caller)
                tasks = [asyncio.ensure_future(way) for way in ways]
                try:
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                del self._callers[name]


async def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until one of them ends, in whatever way: that is no error of ours."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while chunk := await loop.sock_recv(source, CHUNK):
            await loop.sock_sendall(target, chunk)

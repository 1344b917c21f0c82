"""gRPC `vcuda.VCUDAService/RegisterVDevice`, as gpu-client calls it."""

import errno
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio

from gpumanager import grpc_wire
from gpumanager.grpc_wire import Method
from gpumanager.legacy.api import vcuda_pb2 as pb
from gpumanager.legacy.files import VDevice
from gpumanager.limits.socket.protocol import HelloRefused

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

Registrar = Callable[[str], Register | None]
"""Finds the caller that gRPC calls so (`unix-abstract:…`); None for an unknown one."""


class RegisterServer:
    """Serves callers on a socket of the manager's own."""

    def __init__(self, socket: Path, registrar: Registrar) -> None:
        self._socket = socket
        self._registrar = registrar
        self._server = grpc.aio.server(options=[("grpc.max_receive_message_length", MESSAGE_LIMIT)])
        self._server.add_generic_rpc_handlers(
            (grpc_wire.handler(SERVICE, {METHOD: self._register}),)
        )

    async def start(self) -> None:
        """Raises OSError."""
        self._socket.unlink(missing_ok=True)
        try:
            self._server.add_insecure_port(f"unix:{self._socket}")
        except RuntimeError as error:
            raise OSError(None, f"gRPC cannot listen: {error}", str(self._socket)) from error
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(grace=None)
        self._socket.unlink(missing_ok=True)

    async def _register(self, request: pb.VDeviceRequest, context: Any) -> pb.VDeviceResponse:
        register = self._registrar(context.peer())
        if register is None:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "call /etc/vcuda/vcuda.sock")
            raise AssertionError("abort returned")  # pragma: no cover  # it always raises
        refused = await register(_device(request))
        if refused is not None:
            status = STATUSES.get(refused.number, grpc.StatusCode.UNAVAILABLE)
            await context.abort(status, refused.reason)
        return pb.VDeviceResponse()


def _device(request: pb.VDeviceRequest) -> VDevice:
    return VDevice(request.pod_uid, request.container_name, request.container_id, request.bus_id)
